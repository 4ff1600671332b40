"""Reads the user's data frames without running the user's code: safe.py says how."""
