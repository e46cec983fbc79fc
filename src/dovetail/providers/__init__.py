"""Clouds behind the Cloud port: one package each.

They say what can be bought and start and end machines; which machine, and when, is decided elsewhere.
"""
