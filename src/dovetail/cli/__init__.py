"""The command line: parse, ask, print.

It decides nothing; every table also comes as JSON and YAML.
"""
