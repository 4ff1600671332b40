package main

import (
	"errors"

	"colabrelay/relay/client"
	"colabrelay/relay/hostconfig"
	"colabrelay/relay/transfer"
	"colabrelay/shared/contract"
)

// nextSteps say what a person does about an error that carries no hint of its own.
var nextSteps = []struct {
	err  error
	step string
}{
	{transfer.ErrGuarded, "to upload it all the same, run the same command with --force"},
	{transfer.ErrUnexpected, "run the same command again"},
	{transfer.ErrChanged, "something writes to the file: wait until it is whole, then run the same command again"},
	{transfer.ErrLocalDisk, "free disk space on this computer; the same command then goes on where it stopped"},
	{transfer.ErrBusy, "wait until the other transfer of this file has ended, or give it another name"},
	{transfer.ErrLocalPath, "give a local path that is a folder, or that can become one"},
	{transfer.ErrForbiddenName, "give it another name as the second argument"},
	{transfer.ErrNotRegular, "move files and folders only; write what is wanted into a file first"},
	{transfer.ErrTooMany, "pack the folder into one archive (tar, zip), or move its subfolders one by one"},
	{errRestarted, "run it again in the new kernel, after the set-up code that it needs"},
	{hostconfig.ErrChanged, "close the host, then run the same command again"},
	{transfer.ErrSomeFailed, "run the same command again; files that are there are skipped"},
}

// nextStep is the hint for err, empty where there is none.
func nextStep(err error) string {
	for _, n := range nextSteps {
		if errors.Is(err, n.err) {
			return n.step
		}
	}
	var (
		refused *contract.Error
		lost    *client.Error
	)
	switch {
	case errors.As(err, &refused):
		return refused.Hint
	case errors.As(err, &lost):
		return lost.Hint
	}
	return ""
}
