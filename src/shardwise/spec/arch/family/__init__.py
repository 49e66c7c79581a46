"""Model families: one file is one family and exports FAMILY."""
