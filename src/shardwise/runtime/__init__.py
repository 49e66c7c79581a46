"""What runs on the user's machine with torch. Nothing below this room imports torch."""
