package hint

import (
	"io/fs"

	"colabrelay/relay/checkpoint"
	"colabrelay/relay/chunked"
	"colabrelay/relay/client"
	"colabrelay/relay/hostconfig"
	"colabrelay/relay/kernelstate"
	"colabrelay/relay/transfer"
	"colabrelay/shared/contract"
)

var (
	conflict    = string(contract.CodeConflict)
	forbidden   = string(contract.CodeForbiddenPath)
	notFound    = string(contract.CodeNotFound)
	tooLarge    = string(contract.CodeTooLarge)
	fileChanged = string(contract.CodeChanged)
)

const (
	onlyFiles = "Only files and folders can be transferred. Write the data into a file first."
	packIt    = "Pack the folder into one archive (tar, zip), or transfer its subfolders one by one."
)

// operations are the hints for errors of the relay's own packages.
var operations = []row{
	{transfer.ErrGuarded, Hint{forbidden,
		"Do not work around this: ask the user. The user may upload it with `colab-relay put` in a terminal, or list the path in RELAY_UPLOAD_ALLOW in the relay's environment, which permits everything except the relay's own folders.",
		"To upload it anyway, run the same command with --force."}},
	{transfer.ErrUnexpected, Hint{fileChanged,
		"Call again; the kernel then saves the state once more. If the error persists, code in the kernel interferes with saving: call restart_kernel.",
		"Run the same command again."}},
	{transfer.ErrChanged, Hint{fileChanged,
		"Something writes to the file. Wait until it is complete (list_executions shows what runs), then call again with the same arguments.",
		"Something writes to the file. Wait until it is complete, then run the same command again."}},
	{transfer.ErrLocalDisk, Hint{CodeLocalDiskFull,
		"Free disk space on this computer, then call again with the same arguments: the transfer resumes where it stopped.",
		"Free disk space on this computer, then run the same command again: the transfer resumes where it stopped."}},
	{transfer.ErrBusy, Hint{CodeBusy,
		"Another call is transferring this file. Wait until it has answered, then call again with the same arguments, or choose another name.",
		"Wait until the other transfer of this file has ended, or give the file another name."}},
	{transfer.ErrForbiddenName, Hint{forbidden,
		"Use a local name below LOCAL_SAVE_DIR: a relative path without .. or drive letters, made of names that this computer allows.",
		"Give the file another name as the second argument."}},
	{transfer.ErrNotRegular, Hint{string(contract.CodeNotSupported), onlyFiles, onlyFiles}},
	{transfer.ErrLocalPath, Hint{CodeBadRequest,
		"Check local_path, and that LOCAL_SAVE_DIR names a folder, or one that can be created.",
		"LOCAL must be a folder or a path where one can be created."}},
	{transfer.ErrTooMany, Hint{tooLarge, packIt, packIt}},
	{transfer.ErrSomeFailed, Hint{CodeSomeFailed,
		"notes lists these files and the reasons. Call again with the same arguments: files that are already transferred are skipped.",
		"Run the same command again: files that are already transferred are skipped."}},
	{hostconfig.ErrChanged, Hint{Person: "Close the host, then run the same command again."}},

	{checkpoint.ErrBusy, Hint{Code: CodeBusy, Model: "Wait until the other call has answered, or use another checkpoint_name."}},
	{chunked.ErrNoName, Hint{Code: CodeBadRequest, Model: "Give a checkpoint_name."}},
	{chunked.ErrTooLarge, Hint{Code: tooLarge, Model: "Put data into a file on the VM (upload_to_colab), and large functions into a module there."}},
	{chunked.ErrChanged, Hint{Code: conflict, Model: "Call again with on_change=\"continue\" to keep the iterations already done and continue with the new code, with on_change=\"restart\" to start at iteration 0, or with another checkpoint_name."}},
	{chunked.ErrDamaged, Hint{Code: CodeDamaged, Model: "The file was not changed. Use another checkpoint_name, or call run_chunked_operation with on_change=\"restart\": the file is then kept under another name and the run starts at iteration 0."}},
	{chunked.ErrNotChunked, Hint{Code: conflict, Model: "get_checkpoint shows what is saved under this name. Use another checkpoint_name, or on_change=\"restart\", which keeps that file under another name."}},

	{kernelstate.ErrUntrustedReport, Hint{Code: string(client.KindBadAnswer), Model: "Call again. If the error persists, code in the kernel interferes with saving: call restart_kernel."}},
	{kernelstate.ErrNotFound, Hint{Code: notFound, Model: "Call save_kernel_state first."}},
	{kernelstate.ErrNoVersion, Hint{Code: notFound, Model: "Call again with one of these versions, or omit version to use the newest one."}},
	{kernelstate.ErrDamaged, Hint{Code: CodeDamaged, Model: "Call restore_kernel_state with another version. Nothing of the damaged one was loaded, and its files were not changed."}},
	{kernelstate.ErrBusy, Hint{Code: CodeBusy, Model: "Wait until the other call has answered, then call again."}},
	{kernelstate.ErrBadName, Hint{Code: CodeBadRequest, Model: "Give a name of 1 to 200 characters."}},
	{kernelstate.ErrNoReport, Hint{Code: CodeInternal, Model: "Call again. If the error persists, the notebook's code changed IPython itself: call restart_kernel."}},
	{kernelstate.ErrNoSpace, Hint{Code: string(contract.CodeDiskFull), Model: "Delete files on the VM, then call again."}},
}

// localFiles are the hints for faults of this computer's files.
var localFiles = []row{
	{fs.ErrNotExist, Hint{Code: notFound, Model: "Check the path on this computer: it must be absolute, start with ~/, or be below LOCAL_SAVE_DIR."}},
	{fs.ErrPermission, Hint{Code: CodeLocalFile, Model: "The relay may not read or write there: choose another path, or correct the permissions."}},
}
