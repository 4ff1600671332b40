"""Installs packages into the kernel's environment, by uv or pip."""
