package cli

import "os"

// IsTerminal tells whether a stream of the command is a terminal.
func IsTerminal(stream any) bool {
	f, ok := stream.(*os.File)
	return ok && isDevice(f)
}
