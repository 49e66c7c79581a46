"""What is wrong with a run, told from the records of its ranks while it goes on or afterwards."""
