package hint

import (
	"io/fs"

	"colabrelay/relay/bridge"
	"colabrelay/relay/cells"
	"colabrelay/relay/checkpoint"
	"colabrelay/relay/chunked"
	"colabrelay/relay/client"
	"colabrelay/relay/hostconfig"
	"colabrelay/relay/jobs"
	"colabrelay/relay/kernelcall"
	"colabrelay/relay/kernelstate"
	"colabrelay/relay/nbrun"
	"colabrelay/relay/notebook"
	"colabrelay/relay/page"
	"colabrelay/relay/pairing"
	"colabrelay/relay/runlist"
	"colabrelay/relay/transfer"
	"colabrelay/relay/vm"
	"colabrelay/shared/contract"
	"colabrelay/shared/filename"
)

var (
	conflict    = string(contract.CodeConflict)
	forbidden   = string(contract.CodeForbiddenPath)
	notFound    = string(contract.CodeNotFound)
	tooLarge    = string(contract.CodeTooLarge)
	fileChanged = string(contract.CodeChanged)

	notSupported = string(contract.CodeNotSupported)
)

// Parts of several hints.
const (
	again         = "{Call again with the same arguments|Run the same command again}"
	tryAgain      = "{call again with the same arguments|run the same command again}"
	tabLost       = "Call open_colab_browser_connection, then get_cells, before you repeat anything: a cell may have been changed, and one that ran may still be running."
	nothingPaired = "Nothing was paired"
	packIt        = "Pack the folder into one archive (tar, zip), or transfer its subfolders one by one."
	listVMs       = "{list_colab_vms|`colab-relay vm list`}"
	stopVM        = "{stop_colab_vm|`colab-relay vm down`}"
)

// operations are the hints for errors of the relay's own packages. See text for the notation.
var operations = []row{
	{transfer.ErrGuarded, forbidden, "{Do not work around this: ask the user. The user may upload it with `colab-relay put` in a terminal, or list the path in RELAY_UPLOAD_ALLOW in the relay's environment, which permits everything except the relay's own folders.|To upload it anyway, run the same command with --force.}"},
	{transfer.ErrExists, conflict, "{If that file may be replaced, call again with overwrite=true; otherwise give another remote_path. To keep its content, download it first.|To replace it, run the same command with --overwrite; to keep it, name another place on the VM.}"},
	{transfer.ErrUnexpected, fileChanged, again + "{; the kernel then saves the state once more. If the error persists, code in the kernel interferes with saving: call restart_kernel.|.}"},
	{transfer.ErrChanged, fileChanged, "Something writes to the file. Wait until it is complete{ (list_executions shows what runs)|}, then " + tryAgain + "."},
	{transfer.ErrLocalDisk, CodeLocalDiskFull, "Free disk space on this computer, then " + tryAgain + ": the transfer resumes where it stopped."},
	{transfer.ErrBusy, CodeBusy, "Wait until the other transfer of this file has ended, or give the file another name."},
	{filename.ErrNotation, CodeBadRequest, "{Correct the path that the message names, then call again.|}"},
	{transfer.ErrForbiddenName, forbidden, "{Use a relative name without .. or drive letters, which goes below LOCAL_SAVE_DIR, or an absolute path in an allowed folder. For another folder, ask the user to list it in RELAY_DOWNLOAD_DIRS in the relay's environment.|Give the file another name as the second argument.}"},
	{transfer.ErrNotRegular, notSupported, "Only files and folders can be transferred. Write the data into a file first."},
	{transfer.ErrLocalPath, CodeBadRequest, "{Check local_path or local_filename. LOCAL_SAVE_DIR|LOCAL} must name a folder, or a path where one can be created."},
	{transfer.ErrTooMany, tooLarge, packIt},
	{transfer.ErrSomeFailed, CodeSomeFailed, "The notes list these files and the reasons. " + again + ": files that are already transferred are skipped."},
	{pairing.ErrNotPaired, CodeNotConfigured, "{Ask the user to do that, then call again; no restart is needed.|}"},
	{pairing.ErrNoAddress, CodeNotConfigured, "{Ask the user to run these commands in a terminal on this computer, then call again; no restart is needed.|}"},
	{pairing.ErrUnknownName, CodeNotConfigured, "{Call again with the name of a paired runtime, or without runtime_name. To add another one, ask the user to run `colab-relay pair`; no restart is needed.|}"},
	{pairing.ErrAmbiguous, CodeNotConfigured, "{Call again with runtime_name set to one of these names.|}"},
	{hostconfig.ErrChanged, "", "Close the host, then run the same command again."},

	{checkpoint.ErrBusy, CodeBusy, "Wait until the other call has answered, which may take as long as RELAY_HOLD allows (45 s by default), or use another {checkpoint_name|name}."},
	{jobs.ErrAnswer, CodeUnknown, "What answers does not behave as an executor of this release: use a relay and an executor of the same release. If they are, do not trust this VM{: tell the user|}."},
	{chunked.ErrNoLoop, CodeBadRequest, "{get_checkpoint|`colab-relay checkpoints`} shows what is saved. Give {loop_code and n_iterations|--code and --iterations} for a new run."},
	{chunked.ErrTooLarge, tooLarge, "Put data into a file on the VM ({upload_to_colab|`colab-relay put`}), and large functions into a module there."},
	{chunked.ErrChanged, conflict, `{Call again with on_change="continue"|Add --on-change continue} to keep the iterations already done and go on as you say now, {on_change="restart"|--on-change restart} to start at iteration 0, or use another {checkpoint_name|name}.`},
	{chunked.ErrDamaged, CodeDamaged, "The file was not changed. Use another {checkpoint_name, or call run_chunked_operation with on_change=\"restart\"|name, or run `colab-relay loop` with --on-change restart}: the old file is kept under another name, and the run starts at iteration 0."},
	{chunked.ErrAnswer, CodeBadRequest, again + " with one of the values that the message names."},
	{chunked.ErrNotChunked, conflict, "{get_checkpoint|`colab-relay checkpoints`} shows what is saved under this name. Use another {checkpoint_name, or on_change=\"restart\"|name, or --on-change restart}, which keeps that file under another name."},

	{notebook.ErrNotNotebook, CodeNotebookDamaged, "The file was not changed. {Ask the user|Look} for an intact copy, or check that {notebook_path names|this is} the right file."},
	{notebook.ErrOldFormat, notSupported, "{Ask the user to open|Open} the notebook in Jupyter or Colab and {to |}save it there, which converts it{; then call again|}."},
	{notebook.ErrCellChanged, fileChanged, "{Call get_cells|List the cells} again: the cell has another source now, and another id."},
	{notebook.ErrNoCell, notFound, "{get_cells|`colab-relay nb cells FILE`} lists the ids of all cells."},
	{notebook.ErrHalves, CodeBadRequest, "Change other lines {with find|with --find and --replace}, which keeps this one."},
	{notebook.ErrNoIndex, CodeBadRequest, "{Call get_cells for the number of cells; indexes|Indexes} count from 0."},
	{notebook.ErrChanged, fileChanged, "{The file is not the one with this digest, and was not changed. Call get_cells again, look at what is different, then repeat the edit with the new digest.|Look at the notebook again, then repeat the command.}"},
	{notebook.ErrBusy, CodeBusy, "{Another call or relay is writing this notebook. |}Wait some seconds, then try again."},
	{notebook.ErrRestless, CodeBusy, "{Another program, such as an editor, keeps saving this notebook. Wait some seconds, then call again; if that does not help, ask the user to close it there|Close the notebook in other programs, then run the same command again}."},
	{notebook.ErrForbiddenPath, forbidden, "{Do not work around this: use a notebook below the home folder or LOCAL_SAVE_DIR, or ask the user to list its folder in RELAY_NOTEBOOK_DIRS in the relay's environment|Use a notebook below your home folder, or list its folder in RELAY_NOTEBOOK_DIRS}."},

	{cells.ErrFind, CodeBadRequest, "{Read the cell with get_cells and cellId, and copy find from there exactly, with spaces and line breaks, and without characters that are not shown: a part that occurs once. Or omit find and give the whole source as content|Give --find a part of the source that occurs once, or change the cell in your editor}."},
	{cells.ErrLanguage, notSupported, "Give the notebook's own language, or use another notebook. Only Python cells can be run."},
	{cells.ErrLoss, CodeBadRequest, "Change parts of the source with {find|--find}, which keeps the rest{, or delete the cell and add a new one if nothing of it is needed|, or use your editor}."},
	{cells.ErrNotCode, CodeBadRequest, "{get_cells|`colab-relay nb cells`} shows the type of each cell."},
	{cells.ErrNotRun, CodeNotRun, `Ask the user to look at the tab and to click what it asks for: "Run anyway" (notebooks from GitHub), signing in, or connecting to a runtime. Then call again.`},
	{cells.ErrPlace, CodeBadRequest, "Give {cellIndex or afterCellId|--at or --after}; without both, the cell is appended."},
	{cells.ErrQuery, CodeBadRequest, "Use the syntax of RE2, which has no look-around and no references to groups, or give a text without slashes."},
	{cells.ErrSameID, CodePageRefused, "Ask the user to copy one of the cells in Colab and to delete the original, then call get_cells again."},
	{cells.ErrTabChanged, fileChanged, "Call get_cells again, look at what is different, then repeat the call."},
	{cells.ErrType, notSupported, "Add a cell of the other type with the same source, then delete this one; or ask the user to change it in Colab."},
	{runlist.ErrNoSuchRun, notFound, "{list_executions|`colab-relay ps`} shows the runs that the VM knows. A replaced VM's runs are gone with it."},
	{runlist.ErrAmbiguous, CodeBadRequest, "Give more characters of the id."},
	{page.ErrTabLost, CodeTabLost, tabLost},
	{page.ErrClosed, CodeTabLost, tabLost},

	{nbrun.ErrBusy, CodeBusy, "Wait until the other {call has answered|call or command has ended}, then " + tryAgain + "."},
	{nbrun.ErrSpec, CodeBadRequest, "Correct {the arguments that the message names, then call again|what the message names; `colab-relay nb run --help` shows the values}."},
	{nbrun.ErrConflict, conflict, "The cell was edited while it runs. Wait for its end{ with get_execution|}, or {call interrupt_execution|interrupt it}, then try again."},
	{nbrun.ErrCellLost, string(contract.StatusLost), "Find out whether the cell did its work. The same call runs it on the VM that answers now, which has none of the variables."},
	{nbrun.ErrDamaged, CodeDamaged, "{Ask the user to move|Move} this file away; then every cell counts as never run, and a new run begins."},
	{nbrun.ErrNotPython, notSupported, "Only Python notebooks can be run{; get_cells and the tools that edit cells work with this one|}."},
	{nbrun.ErrOutputPath, conflict, "Choose another {output_path: a file|file for the outputs: one} that exists is never replaced.{ Omit it to save outputs in the notebook itself.|}"},

	{bridge.ErrStarting, CodePageWaiting, "{Tell the user what the message says there is to click. Then call open_colab_browser_connection again with the same arguments, which joins the same start|Run the same command again; it starts from the beginning}."},
	{bridge.ErrNotReady, CodePageWaiting, `{Ask the user to look|Look} at the Colab tab: {to |}sign in, {to |}click "Run anyway" or "Connect", and {to |}wait for or stop a cell that runs. Then ` + tryAgain + "."},
	{bridge.ErrPage, CodePageRefused, "{Tell the user what the page says, and do not repeat the call at once. |}If there is no VM or GPU: {the user chooses|choose} another one under Runtime, Change runtime type, or {waits; then call again|wait. Then run the same command again}."},
	{bridge.ErrCell, CodeNoExecutor, nothingPaired + " and the cell was removed. The message says what failed on the VM: correct that{, or tell the user; then|, then} " + tryAgain + "."},
	{bridge.ErrExpired, CodeNoExecutor, nothingPaired + "; an executor that still starts on the VM ends by itself. " + again + ": the second start is faster, because the executor is already downloaded."},
	{bridge.ErrNotGenuine, CodeNoExecutor, "{Do not repeat the call at once: tell the user that something|Something} between the page and the VM changes what the relay sends or gets, for example a browser extension{. An executor that runs ends by itself within minutes.|: try another browser profile.}"},
	{bridge.ErrUnreachable, CodeNoExecutor, "The message says what is wrong with the connection to the tunnel. The executor ends by itself within a few minutes; then try again."},
	{bridge.ErrNameTaken, conflict, "The pairing of that name stays as it is{. Call again with another runtime_name, or without it: then a free name is used|: give another name, or remove that pairing with `colab-relay unpair`}."},
	{bridge.ErrBusy, CodeBusy, "{Call again with the arguments of the call that is in progress, and wait for its end|Wait until the other start has ended, then run the same command again}."},
	{bridge.ErrPrepare, CodeNoExecutor, "Nothing was changed in the notebook.{ Tell the user what the message says; once it is corrected, call again with the same arguments.|}"},
	{bridge.ErrClosed, CodeNoExecutor, nothingPaired + ".{ Call again once the relay runs.|}"},

	{kernelstate.ErrUntrustedReport, string(client.KindBadAnswer), again + ". If the error persists, code in the kernel interferes with saving: {call restart_kernel|run `colab-relay restart`}."},
	{kernelstate.ErrNotFound, notFound, "{Call again with the name of a saved state, or save one with save_kernel_state|`colab-relay states` lists those there are}."},
	{kernelstate.ErrNoVersion, notFound, "Use one of these versions, or omit {version|--version} for the newest one."},
	{kernelstate.ErrDamaged, CodeDamaged, "Restore another version. Nothing of the damaged one was loaded, and its files were not changed."},
	{kernelstate.ErrBusy, CodeBusy, "Wait until the other {call has answered|one has ended}, then " + tryAgain + "."},
	{kernelcall.ErrSlow, string(contract.StatusTimedOut), "{Ask for less, or do it in run_code_long.|}"},
	{kernelcall.ErrNoReport, CodeInternal, again + ". If the error persists, the notebook's code changed IPython itself: {call restart_kernel|run `colab-relay restart`}."},

	{vm.ErrNotEnabled, CodeNotEnabled, "{Ask the user. The user runs|Run} `colab-relay vm login`{ in a terminal|}, which shows the rules and risks{; then call again|}."},
	{vm.ErrNotLoggedIn, CodeNotEnabled, "{Ask the user to run `colab-relay vm login` in a terminal, then call again|Run `colab-relay vm login`}."},
	{vm.ErrTooMany, CodeQuota, "Stop a VM that is no longer needed {with stop_colab_vm, after you asked the user; or use the notebook's VM in Colab's page|(`colab-relay vm list`, then `colab-relay vm down NAME`), or end a session in Colab's page}."},
	{vm.ErrQuota, CodeQuota, "{Tell the user. Do not try other accelerators: the limit is the account's. list_colab_vms|Wait until tomorrow, or buy compute units; `colab-relay vm list`} shows what runs."},
	{vm.ErrDenied, CodeDenied, "{Tell the user, and do|Do} not try again{|; Colab's page may show the reason, and how to appeal}."},
	{vm.ErrNotEligible, CodeDenied, "Name other accelerators, such as {T4; add CPU at the end of the list if a VM without an accelerator is of use|--gpu T4; a subscription allows more}."},
	{vm.ErrNoneFree, CodeBusy, "Try again in some minutes, or name more accelerators{; add CPU at the end of the list if a VM without an accelerator is of use|, such as --gpu T4,L4}."},
	{vm.ErrStopped, conflict, "{Call list_colab_vms. If the VM is still listed, call stop_colab_vm again; then it can be started anew|Look at `colab-relay vm list`; if it is still listed, run `colab-relay vm down` again}."},
	{vm.ErrNotOurs, forbidden, "{Ask the user first: it|It} may be the VM of an open notebook. {Then call again with force=true|Add --force to stop it anyway}."},
	{vm.ErrUnknown, notFound, listVMs + " shows the VMs."},
	{vm.ErrNameTaken, conflict, "Give another name{| with --name, or remove the pairing with `colab-relay unpair NAME`}."},
	{vm.ErrOther, conflict, "Give another name{, or the accelerators of that VM; stop_colab_vm stops it| with --name, or stop that VM with `colab-relay vm down NAME`}."},
	{vm.ErrTooManyKept, tooLarge, "{Ask the user to remove|Remove} old entries with `colab-relay vm down`."},
	{vm.ErrNoTunnel, CodeNotEnabled, "{Ask the user to set NGROK_AUTHTOKEN in the relay's environment; the token is free at https://dashboard.ngrok.com.|Set NGROK_AUTHTOKEN to your token from https://dashboard.ngrok.com/get-started/your-authtoken; or, if the VM has the program cloudflared, add --tunnel cloudflared. If a VM runs already, `colab-relay vm down` stops it.}"},
	{vm.ErrLaunch, CodeInternal, "The VM runs. " + again + " to try it once more, or stop the VM with " + stopVM + "."},
	{vm.ErrUnreachable, string(client.KindUnreachable), "The VM runs. " + again + " in a minute, or stop the VM with " + stopVM + "."},
	{vm.ErrNotConfirmed, CodeBusy, "{Call stop_colab_vm again in some minutes, until it reports that the VM is gone|Run the same command again in some minutes. The VM stays in `colab-relay vm list` until it is known to be gone}."},
	{vm.ErrInterrupted, "", "The same command goes on with it; `colab-relay vm down NAME` stops it."},
	{vm.ErrBadRequest, CodeBadRequest, "Correct {the arguments that the message names, then call again|what the message names}."},
	{vm.ErrGone, notFound, "Colab has ended the VM, or it never existed. {list_colab_vms shows what is left; start_colab_vm|`colab-relay vm up`} starts another one."},
}

// localFiles are the hints for faults of this computer's files.
var localFiles = []row{
	{fs.ErrNotExist, notFound, "{Check the path on this computer: it must be absolute, start with ~/, or be below LOCAL_SAVE_DIR.|}"},
	{fs.ErrPermission, CodeLocalFile, "{The relay may not read or write there: choose another path, or correct the permissions.|}"},
}
