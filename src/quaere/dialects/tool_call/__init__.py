"""The tool-call dialect: JSON calls between tags (Dr. Zero; with evidence EVE-Agent)."""
