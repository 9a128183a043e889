"""EVE-Agent: Dr. Zero with evidence; proposer and solver both quote the sentence that proves the answer."""
