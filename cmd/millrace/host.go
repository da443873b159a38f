package main

// hostFacts is what the machine lets a broker do.
type hostFacts struct {
	openFiles    uint64 // most open files; 0 = not known
	openFilesErr error  // why the limit could not be raised
	memoryLimit  int64  // of the garbage collector, bytes
	fileSystem   string // of the data directory; empty = not known
	free, total  uint64 // bytes of the disk
	spaceErr     error
}

// enoughFiles is the limit of open files below which a broker warns: a
// connection and each partition take some.
const enoughFiles = 65_536
