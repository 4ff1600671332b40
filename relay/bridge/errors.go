package bridge

import "errors"

// What can keep a bridge from standing. Package hint says what to do about each.
var (
	// ErrStarting matches *StartingError.
	ErrStarting = errors.New("the executor is still being started")
	// ErrNotReady: the page answered for 300 s that it ran nothing.
	ErrNotReady = errors.New("the notebook did not run a cell within 300 s")
	// ErrPage: the page refused to run a cell, as when there is no VM or no GPU.
	ErrPage = errors.New("the page in Colab could not run a cell")
	// ErrCell: a cell said why there is no executor, as after a failed download.
	ErrCell = errors.New("the executor could not be started on the VM")
	// ErrExpired: keys and answers are valid for 180 s.
	ErrExpired = errors.New("the executor was not ready within 180 s")
	// ErrNotGenuine: the answer is not that of the executor that opened the grant.
	ErrNotGenuine = errors.New("the answer that the page showed is not the executor's, so nothing was paired")
	// ErrUnreachable: the executor runs, but no signed request reached it.
	ErrUnreachable = errors.New("the executor was started, but this computer cannot reach it, so it was not paired")
	// ErrNameTaken: the name belongs to another pairing, which stays.
	ErrNameTaken = errors.New("the name belongs to another pairing")
	// ErrBusy: a bridge for another runtime is being built in this tab.
	ErrBusy = errors.New("an executor is already being started in this tab")
	// ErrPrepare: a setting is wrong, or the release could not be asked for its executor.
	ErrPrepare = errors.New("the start of an executor could not be prepared")
	// ErrClosed: the relay ends.
	ErrClosed = errors.New("the relay ended before the executor was paired")
)

// StartingError says that the caller's time ended before the bridge stood. It goes on.
type StartingError struct {
	Step string // what it waits for
}

func (e *StartingError) Error() string { return ErrStarting.Error() + ": " + e.Step }

// Unwrap makes it match ErrStarting.
func (e *StartingError) Unwrap() error { return ErrStarting }
