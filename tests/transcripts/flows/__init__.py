"""The builders of the flows of transcripts, in a module for each subject.

A builder is called with a function that completes step ids, with the stream of each input, and with
the transcript's options; it returns the stream of each output. Workers of Spark import the modules.
"""
