"""EVE-Agent: Dr. Zero with evidence. Who asks must quote what proves the answer, and whoever answers must quote too."""
