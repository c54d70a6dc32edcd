// A source for the targets that own a precompiled header (PrecompiledHeaders.cmake).
