package terminal

import "golang.org/x/sys/windows"

// flushInput drops what was typed and not read yet.
func flushInput(fd int) { _ = windows.FlushConsoleInputBuffer(windows.Handle(fd)) }
