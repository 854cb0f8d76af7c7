"""Messages between parties: named raw buffers, in memory or over mutual TLS; certificates."""
