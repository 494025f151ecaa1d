//! What other proxies get wrong, as far as no cell of the table is about it.
