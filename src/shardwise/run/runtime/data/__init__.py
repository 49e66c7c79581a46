"""What is trained on: texts as tokens, pictures of digits; every sample follows from its number."""
