"""Speed and memory, each against a baseline measured in the same run. The last line of each is one JSON object."""
