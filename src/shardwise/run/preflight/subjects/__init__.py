"""What is looked at: one file a subject, found by the registry; each exports SUBJECT."""
