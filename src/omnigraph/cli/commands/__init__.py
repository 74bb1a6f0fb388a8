"""One module per verb; each offers `register`, which adds the verb to the application.

Nothing here imports the engine while it is being imported: a verb reaches for it inside its function.
"""
