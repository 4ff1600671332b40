// Package files has the commands that copy files: get and put. It must not move bytes itself:
// relay/transfer does. Start reading at transferCommand.
package files

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"colabrelay/relay/cli"
	"colabrelay/relay/client"
	"colabrelay/relay/config"
	"colabrelay/relay/plain"
	"colabrelay/relay/progress"
	"colabrelay/relay/runtimes"
	"colabrelay/relay/terminal"
	"colabrelay/relay/transfer"
	"colabrelay/shared/filename"
)

// transferCommand is what get and put have in common.
type transferCommand struct {
	set       *config.Settings
	std       terminal.Streams
	runtime   string
	overwrite bool
	asJSON    bool
	upload    bool
}

func (c *transferCommand) addFlags(cmd *cobra.Command, overwrite string) {
	cli.AddRuntimeFlag(cmd, &c.runtime)
	c.set.AddFlags(cmd.Flags(), "CHECKPOINT_DIR")
	cli.AddJSONFlag(cmd, &c.asJSON)
	cmd.Flags().BoolVar(&c.overwrite, "overwrite", false, overwrite)
}

// moveFunc transfers the thing with this index.
type moveFunc func(ctx context.Context, i int, vm runtimes.Runtime, o transfer.Options) (transfer.Result, error)

// run transfers things and shows the progress; names is what it transfers. It retries when
// the connection breaks, as long as bytes arrive. If the VM does not answer at the beginning, it
// returns that error immediately. It stops at the first error.
func (c *transferCommand) run(ctx context.Context, names []string, move moveFunc) error {
	cfg := config.Load(*c.set)
	if err := cfg.Err(); err != nil {
		return err
	}
	var newest lastAttempt
	pool := runtimes.New(runtimes.Config{Getenv: c.set.Get, Pairings: cfg.Pairings, OnAttempt: newest.record, Transport: cli.VMTransport(*c.set, cfg)})
	defer pool.Close()
	target, err := pool.Resolve(c.runtime)
	if err != nil {
		return err
	}
	if err := cli.Reach(ctx, target.Client); err != nil {
		return err
	}
	o := transfer.Options{Overwrite: c.overwrite, RecordDir: cfg.TransferDir, ResumeDir: transfer.ResumeDir(cfg.CheckpointDir)}
	answers := []transferAnswer{}
	for i, name := range names {
		began := time.Now()
		r, err := c.show(ctx, name, &newest, func(report func(transfer.Progress)) (transfer.Result, error) {
			o.Report = report
			return move(ctx, i, target, o)
		})
		if left := len(names) - i - 1; err != nil && left > 0 {
			err = fmt.Errorf("%w; not transferred either: %s", err, plain.Count(left, "further argument"))
		}
		if err != nil && len(names) > 1 && c.asJSON {
			return errors.Join(err, cli.PrintJSON(c.std.Out, answers))
		}
		if err != nil {
			return err
		}
		answers = append(answers, transferred(target.Name, c.upload, r))
		if c.asJSON {
			continue
		}
		if _, err := fmt.Fprintln(c.std.Out, summary(r, c.upload, time.Since(began))); err != nil {
			return err
		}
	}
	switch {
	case !c.asJSON:
		return nil
	case len(names) == 1:
		return cli.PrintJSON(c.std.Out, answers[0])
	}
	return cli.PrintJSON(c.std.Out, answers)
}

// show runs one transfer and shows its progress and its notes.
func (c *transferCommand) show(ctx context.Context, name string, newest *lastAttempt, move func(report func(transfer.Progress)) (transfer.Result, error)) (transfer.Result, error) {
	var meter progress.Meter
	display := terminal.NewProgress(c.std.Err, name, func() string { return cli.ProgressLine(&meter, newest.failure(), time.Now()) })
	r, err := move(func(p transfer.Progress) {
		meter.Report(p)
		display.Report(p)
	})
	display.Close()
	for _, note := range allNotes(r) {
		fmt.Fprintf(c.std.Err, "note: %s\n", plain.Line(note))
	}
	if err != nil && ctx.Err() != nil {
		p, _ := meter.Last()
		return r, fmt.Errorf("stopped at %s: run the same command again to resume", progress.Share(p.Done, p.Total))
	}
	if _, lost := errors.AsType[*client.Error](err); lost {
		p, _ := meter.Last()
		err = fmt.Errorf("%w; it stopped at %s: run the same command again to resume", err, progress.Share(p.Done, p.Total))
	}
	return r, err
}

// allNotes returns the notes of a transfer, with what a download left out.
func allNotes(r transfer.Result) []string {
	if note := r.LeftOut.Note("--dotfiles downloads them too"); note != "" {
		return append([]string{note}, r.Notes...)
	}
	return r.Notes
}

// lastAttempt keeps the outcome of the newest attempt to reach the VM: a transfer
// retries, and reports an error only when it ends.
type lastAttempt struct {
	mu  sync.Mutex
	err error
}

func (l *lastAttempt) record(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.err = err
}

// failure is nil if the newest attempt succeeded.
func (l *lastAttempt) failure() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

// GetCommand returns `colab-relay get`.
func GetCommand(set *config.Settings, std terminal.Streams) *cobra.Command {
	c := &transferCommand{set: set, std: std}
	dotfiles := false
	cmd := &cobra.Command{
		Use:   "get REMOTE [LOCAL]",
		Short: "Download a file or folder from the VM; run it again to resume",
		Long: "Download a file or folder from the VM and check it by SHA-256. If the download is stopped or the connection breaks, run the same command again to resume it.\n" +
			"Without LOCAL, the download goes into the current folder under the last part of REMOTE (for /content: under the runtime's name). If LOCAL is a folder or ends in a slash, the download goes into it.\n" +
			"A folder becomes LOCAL itself if nothing is there, or if an earlier run of the same download created it. It is not merged into any other folder unless you give --overwrite. If that folder has exactly the same files already, nothing is written.\n" +
			"Files and folders in it whose names begin with a dot, instruction files of agents such as CLAUDE.md, and files named HEAD, are left out, because programs on this computer may obey them; a note lists them. With --dotfiles, they are downloaded too.",
		Example: "  colab-relay get /content/model.pt\n  colab-relay get results plots/           # a folder, into the folder plots\n  colab-relay get log.txt --json",
		Args:    cli.Arguments(1, 2),
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			if len(args) == 1 {
				return nil, cobra.ShellCompDirectiveDefault // LOCAL
			}
			return nil, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if args[0] == "" {
				return cli.Usagef("REMOTE is empty: name a file or folder on the VM, such as /content/model.bin")
			}
			local, err := filename.Typed(append(args, "")[1])
			if err != nil {
				return cli.AsUsage(err)
			}
			to := localTarget(local)
			return c.run(cmd.Context(), args[:1], func(ctx context.Context, _ int, vm runtimes.Runtime, o transfer.Options) (transfer.Result, error) {
				to.Runtime, to.Dotfiles = vm.Name, dotfiles
				return transfer.Download(ctx, vm.Client, args[0], to, o)
			})
		},
	}
	cmd.Flags().BoolVar(&dotfiles, "dotfiles", false, "of a folder, also download what programs may obey: names that begin with a dot, instruction files of agents such as CLAUDE.md, and files named HEAD")
	c.addFlags(cmd, `replace a different file of the same name; without this flag the new file is saved as "name (1).ext"`)
	return cmd
}

// localTarget returns the place that LOCAL names. A person may write anywhere.
func localTarget(local string) transfer.Local {
	base := filepath.Base(local)
	switch {
	case local == "", base == ".", base == "..", base == string(filepath.Separator),
		strings.HasSuffix(local, "/"), os.IsPathSeparator(local[len(local)-1]):
		return transfer.Local{Dir: filepath.Clean(local)}
	}
	return transfer.Local{Dir: filepath.Dir(local), Name: base}
}

// loadsNewModule: a kernel keeps modules as they were imported.
const loadsNewModule = "if the kernel has imported the earlier version of this module, `colab-relay run FILE` and `colab-relay run --with` load the new one; cells and `colab-relay run -c` keep the earlier one until importlib.reload or `colab-relay restart`"

// PutCommand returns `colab-relay put`.
func PutCommand(set *config.Settings, std terminal.Streams) *cobra.Command {
	c := &transferCommand{set: set, std: std, upload: true}
	force, to := false, ""
	cmd := &cobra.Command{
		Use:   "put LOCAL... [REMOTE]",
		Short: "Upload files or folders to the VM; run it again to resume",
		Long: "Upload files or folders to the VM and check them by SHA-256. If the upload is stopped or the connection breaks, run the same command again to resume it.\n" +
			"Without REMOTE, the upload goes into /content, or into the executor's working directory if the VM has no /content. If REMOTE is a folder or ends in a slash, a file goes into it.\n" +
			"The last argument is REMOTE if nothing on this computer has that name; after several LOCALs, it must also begin or end with a slash. With --to, all arguments are LOCALs.\n" +
			"A file on the VM is replaced if an earlier upload from this computer put it there and it has not changed since. Any other file is replaced only with --overwrite.\n" +
			"Files that usually contain keys or passwords are uploaded only after you confirm, or with --force.",
		Example: "  colab-relay put data.csv\n  colab-relay put train.py helpers.py\n  colab-relay put photos /content/photos\n  colab-relay put a.csv b.csv --to data",
		Args:    cli.Arguments(1, maxPut),
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return nil, cobra.ShellCompDirectiveDefault // files
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			sources, remote, err := putArguments(args, to, cmd.Flags().Changed("to"))
			if err != nil {
				return err
			}
			cfg := config.Load(*set)
			if err := cfg.Err(); err != nil {
				return err
			}
			guard := cfg.Guard
			if force {
				guard = nil
			}
			guards := make([]*transfer.Guard, len(sources))
			for i, local := range sources {
				guards[i] = guard
				err := transfer.CheckUpload(cmd.Context(), local, guard)
				switch {
				case errors.Is(err, transfer.ErrGuarded) && terminal.Confirm(cmd.Context(), std, plain.Text(err.Error())+"\nUpload it anyway?"):
					guards[i] = nil
				case err != nil:
					return err
				}
			}
			return c.run(cmd.Context(), sources, func(ctx context.Context, i int, vm runtimes.Runtime, o transfer.Options) (transfer.Result, error) {
				o.Guard = guards[i]
				r, err := transfer.Upload(ctx, vm.Client, sources[i], remote, o)
				if err == nil && r.Replaced > 0 {
					r.Notes = append(r.Notes, loadsNewModule)
				}
				return r, err
			})
		},
	}
	c.addFlags(cmd, "replace a different file of the same name on the VM")
	cmd.Flags().BoolVar(&force, "force", false, "upload files that usually contain keys or passwords without asking")
	cmd.Flags().StringVar(&to, "to", "", "upload into this `FOLDER` of the VM; all arguments are then files or folders on this computer")
	return cmd
}

// maxPut bounds the arguments of put: a shell's pattern may name many files.
const maxPut = 10_000

// putArguments divides the arguments of put into what is uploaded and its place on the VM,
// empty for the default one. into is the folder of --to. It refuses what it could only guess.
func putArguments(args []string, into string, hasInto bool) (sources []string, remote string, err error) {
	typed := args
	args = slices.Clone(args)
	for i, arg := range args {
		if arg == "" {
			return nil, "", cli.Usagef("LOCAL is empty: name a file or folder on this computer")
		}
		if args[i], err = filename.Existing(arg); err != nil {
			return nil, "", cli.AsUsage(err)
		}
	}
	if hasInto {
		if into == "" {
			return nil, "", cli.Usagef("--to is empty: name a folder on the VM, such as /content/data")
		}
		if err := filename.CheckTyped(into); err != nil {
			return nil, "", cli.AsUsage(err)
		}
		return args, asFolder(into), sameNames(args)
	}
	last := args[len(args)-1]
	named := transfer.RemotePath(typed[len(args)-1], runtime.GOOS) // a leading ~ is the VM's home folder
	_, inHome := filename.InHome(named)
	likeFolder := inHome || strings.HasPrefix(named, "/") || strings.HasSuffix(named, "/")
	before := args[:len(args)-1]
	_, err = os.Stat(last)
	here := err == nil
	switch {
	case len(before) == 0:
		return args, "", nil
	case here && likeFolder:
		return nil, "", cli.Usagef("%q is on this computer and may also name a folder on the VM: to upload the others into that folder, leave it out and write `--to %s`; to upload it too, add `--to .`, the executor's working directory", last, last)
	case here:
		return args, "", sameNames(args)
	case len(before) == 1:
		return before, named, nil
	case likeFolder:
		return before, asFolder(named), sameNames(before)
	}
	return nil, "", cli.Usagef("%q is not on this computer; if it is a folder on the VM, write `--to %s`", last, last)
}

// asFolder returns a path on the VM that names a folder, whether that exists or not.
func asFolder(remote string) string {
	return strings.TrimRight(transfer.RemotePath(remote, runtime.GOOS), "/") + "/"
}

// sameNames refuses sources that would get one name in their folder on the VM.
func sameNames(sources []string) error {
	first := map[string]string{}
	for _, source := range sources {
		full, err := filepath.Abs(source)
		if err != nil {
			full = source
		}
		name := filepath.Base(full)
		if other, taken := first[name]; taken {
			return cli.Usagef("%q and %q would both be uploaded as %q: upload them one by one", other, source, name)
		}
		first[name] = source
	}
	return nil
}

// transferAnswer is a finished transfer as JSON, with the fields of the answers of
// download_from_colab and upload_to_colab.
type transferAnswer struct {
	Runtime          string   `json:"runtime"`
	LocalPath        string   `json:"local_path,omitempty"`  // of a download
	RemotePath       string   `json:"remote_path,omitempty"` // of an upload
	Status           string   `json:"status"`                // done, or unchanged if the same file existed
	SizeBytes        int64    `json:"size_bytes"`
	SHA256           string   `json:"sha256,omitempty"` // of a single file
	ResumedFrom      int64    `json:"resumed_from"`
	TransferredBytes int64    `json:"transferred_bytes"`
	Files            int      `json:"files"`
	Skipped          int      `json:"skipped"`
	Notes            []string `json:"notes,omitempty"`
}

// transferred returns the JSON form of a finished transfer.
func transferred(runtime string, upload bool, r transfer.Result) transferAnswer {
	a := transferAnswer{Runtime: runtime, LocalPath: r.Path, Status: "done", SizeBytes: r.SizeBytes, SHA256: r.SHA256,
		ResumedFrom: r.ResumedFrom, TransferredBytes: r.MovedBytes, Files: r.Files, Skipped: r.Skipped, Notes: allNotes(r)}
	if upload {
		a.LocalPath, a.RemotePath = "", r.Path
	}
	if r.Skipped == r.Files {
		a.Status = "unchanged"
	}
	return a
}

// summary is the line that a finished transfer prints: its path, size and duration.
func summary(r transfer.Result, upload bool, took time.Duration) string {
	shown := plain.Line(r.Path)
	if upload {
		shown = plain.Name(r.Path)
	}
	parts := []string{progress.Bytes(r.SizeBytes)}
	if r.IsDir {
		parts = []string{plain.Count(r.Files, "file"), progress.Bytes(r.SizeBytes)}
		if r.Skipped > 0 {
			parts = append(parts, fmt.Sprintf("%d unchanged", r.Skipped))
		}
	}
	switch {
	case r.Skipped == r.Files && !r.IsDir:
		parts = append(parts, "unchanged")
	case r.ResumedFrom > 0:
		parts = append(parts, fmt.Sprintf("in %s, resumed from %s", progress.Duration(took), progress.Bytes(r.ResumedFrom)))
	default:
		parts = append(parts, "in "+progress.Duration(took))
	}
	if r.SHA256 != "" {
		parts = append(parts, "SHA-256 "+r.SHA256)
	}
	return shown + ": " + strings.Join(parts, ", ")
}
