"""What tools of a node print, as numbers; nothing here fails on a text that is damaged: it finds less in it."""
