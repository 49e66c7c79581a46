"""Files of training programs and other tools: launch files, logs, traces, read and written."""
