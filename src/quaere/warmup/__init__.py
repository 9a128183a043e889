"""Warm-up: small models learn the protocol from episodes that were really played, before they train themselves."""
