"""How fast this machine really is: measuring it, fitting constants to it, and the profile that keeps them."""
