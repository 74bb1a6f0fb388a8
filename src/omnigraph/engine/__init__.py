"""The engine: plain synchronous code that turns checked plans into rows and commits."""
