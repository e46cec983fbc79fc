"""Patches as pure functions over documents.

patches             merge, JSON and strategic merge patches
server_side_apply   applied fields and conflicts
field_sets          the sets of fields in managedFields
"""
