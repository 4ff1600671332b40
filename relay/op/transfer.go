package op

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"colabrelay/relay/hint"
	"colabrelay/relay/plain"
	"colabrelay/relay/progress"
	"colabrelay/relay/render"
	"colabrelay/relay/transfer"
	"colabrelay/shared/contract"
	"colabrelay/shared/filename"
)

const (
	moveDone      = "done"
	moveUnchanged = "unchanged" // an identical target exists
	movePartial   = "partial"   // the call's time is over; the same call continues
	moveFailed    = "failed"
)

// Moved is the common part of the answers of download_from_colab and upload_to_colab.
type Moved struct {
	Status           string   `json:"status"`            // done; unchanged: the same file exists already; partial: the call's time was over, call again with the same arguments; failed
	SizeBytes        int64    `json:"size_bytes"`        // size of the file, or of all files of a folder
	SHA256           string   `json:"sha256"`            // SHA-256 of the complete file, compared on both sides; empty for a folder, whose files are compared one by one
	ResumedFrom      int64    `json:"resumed_from"`      // bytes that earlier calls transferred
	TransferredBytes int64    `json:"transferred_bytes"` // bytes that this call transferred
	Files            int      `json:"files"`
	Skipped          int      `json:"skipped"`                // number of files that existed already
	CanContinue      bool     `json:"can_continue"`           // the same call resumes where this one stopped
	NextCommand      string   `json:"next_command,omitempty"` // that call
	Notes            []string `json:"notes,omitempty"`        // what was skipped or failed, and why; which files have a different name at the destination

	done   int64 // bytes of SizeBytes that all calls have transferred
	folder bool
	took   time.Duration
}

// errHold ends a transfer whose call must answer.
var errHold = errors.New("the call's time is over")

// move transfers what name names. A tool's transfer that is not done when its call must answer has not
// failed: what was transferred is kept, and the same call resumes it. A person waits, and sees the
// progress.
func (c *call) move(ctx context.Context, name string, overwrite bool, run func(context.Context, transfer.Options) (transfer.Result, error)) (transfer.Result, Moved, error) {
	o := transfer.Options{Overwrite: overwrite, RecordDir: c.cfg.TransferDir}
	held, cancel := context.WithCancel(ctx)
	defer cancel()
	var r transfer.Result
	var err error
	if c.person != nil {
		r, err = c.person.Transfer(name, func(report func(transfer.Progress)) (transfer.Result, error) {
			o.Report = report
			return run(ctx, o)
		})
	} else {
		var meter progress.Meter
		c.progress.measureWith(func() (string, amount) {
			p, _ := meter.Last()
			return meter.Describe(time.Now()), amount{p.Done, p.Total}
		})
		o.Report = meter.Report
		held, cancel = context.WithTimeoutCause(ctx, c.waitBudget(), errHold)
		defer cancel()
		r, err = run(held, o)
	}
	m := Moved{
		SizeBytes: r.SizeBytes, SHA256: r.SHA256, ResumedFrom: r.ResumedFrom, TransferredBytes: r.MovedBytes,
		Files: r.Files, Skipped: r.Skipped, Notes: r.Notes,
		done: max(r.DoneBytes, r.ResumedFrom+r.MovedBytes), folder: r.IsDir, took: time.Since(c.started),
	}
	switch {
	case err == nil && r.Files > 0 && r.Skipped == r.Files:
		m.Status = moveUnchanged
	case err == nil:
		m.Status = moveDone
	case ranOut(ctx, held, err):
		m.Status, m.CanContinue, m.NextCommand = movePartial, true, c.again()
		err = c.heldUp(err, r)
	default:
		m.Status = moveFailed
	}
	return r, m, hint.With(hint.Transfer, "", err)
}

// ranOut reports whether held's end caused err, rather than a cancellation by the host. The
// call's own ctx may have ended too, on a machine that is slow to stop.
func ranOut(ctx, held context.Context, err error) bool {
	if held.Err() == nil || errors.Is(ctx.Err(), context.Canceled) {
		return false
	}
	return errors.Is(err, errHold) || errors.Is(err, context.DeadlineExceeded) || stuck(err)
}

// stuck reports whether the connection or the executor prevented progress at the end.
func stuck(err error) bool {
	return refusalCode(err) != "" || unreachable(err)
}

// heldUp returns what prevented the progress of a transfer that ran out of time. If something was
// transferred, that is only a warning.
func (c *call) heldUp(err error, r transfer.Result) error {
	if !stuck(err) {
		return nil
	}
	if r.MovedBytes == 0 {
		return err
	}
	p := problemOf(hint.With(hint.Transfer, "", err))
	c.warn("At the end the transfer could not continue (%s). %s", p.Message, p.Hint)
	return nil
}

// command returns a tool call as a model writes it. args are pairs of a name and a value;
// those with zero values are omitted, because these are the defaults.
func command(name string, args ...any) string {
	var all []string
	for pair := range slices.Chunk(args, 2) {
		if pair[1] == "" || pair[1] == false {
			continue
		}
		b, _ := plain.JSON(pair[1], "") // a string, a number or a bool
		all = append(all, fmt.Sprintf("%s=%s", pair[0], strings.TrimSuffix(string(b), "\n")))
	}
	return name + "(" + strings.Join(all, ", ") + ")"
}

// text describes a transfer to a path, which is for a line of the relay's.
func (m *Moved) text(w *words, path string) {
	switch m.Status {
	case moveFailed: // the error says so
	case movePartial:
		fmt.Fprintf(w, "Not done yet: %s transferred so far\nNext step: %s\n", progress.Share(m.done, m.SizeBytes), m.NextCommand)
	default:
		fmt.Fprintf(w, "%s: %s\n", path, m.summary())
	}
	w.notes(m.Notes)
}

// summary is what a finished transfer has moved, and in which time.
func (m *Moved) summary() string {
	parts := []string{progress.Bytes(m.SizeBytes)}
	if m.folder {
		parts = []string{plain.Count(m.Files, "file"), progress.Bytes(m.SizeBytes)}
		if m.Skipped > 0 {
			parts = append(parts, fmt.Sprintf("%d unchanged", m.Skipped))
		}
	}
	switch {
	case m.Status == moveUnchanged && !m.folder:
		parts = append(parts, "unchanged")
	case m.ResumedFrom > 0:
		parts = append(parts, fmt.Sprintf("in %s, resumed from %s", progress.Duration(m.took), progress.Bytes(m.ResumedFrom)))
	default:
		parts = append(parts, "in "+progress.Duration(m.took))
	}
	if m.SHA256 != "" {
		parts = append(parts, "SHA-256 "+m.SHA256)
	}
	return strings.Join(parts, ", ")
}

type downloadArgs struct {
	Remote    string `json:"remote_path" min:"1" max:"4096" doc:"File or folder on the VM." arg:"REMOTE"`
	Local     string `json:"local_filename" default:"" max:"4096" doc:"Name below LOCAL_SAVE_DIR, or path in the project; a folder if it ends in /. By default the remote name." arg:"[LOCAL]" complete:"files"`
	Dotfiles  bool   `json:"dotfiles" default:"false" rare:"" doc:"Of a folder also dot files and agents' instructions." flag:"dotfiles" usage:"of a folder, also download what programs may obey: names that begin with a dot, instruction files of agents such as CLAUDE.md, and files named HEAD"`
	Overwrite bool   `json:"overwrite" default:"false" doc:"Replace a different file of that name; otherwise the new one gets a number, such as \"model (1).bin\"." flag:"overwrite" usage:"replace a different file of the same name; without this flag the new file is saved as \"name (1).ext\""`
	target
}

// Download is the answer of download_from_colab.
type Download struct {
	LocalPath string `json:"local_path"` // path of the file or folder on the relay's machine, where it is or will be once it is complete
	Moved
}

func downloadFromColab() Operation {
	return operation(spec{
		title:       "Download from the VM",
		description: "Copies a file or folder of the VM to this computer, below LOCAL_SAVE_DIR or into a folder that the user allowed: the VM's disk is deleted with the VM. If it is not done, call again with the same arguments. For many small files, download their folder.",
		Command: Command{Group: "files",
			Short: "Download a file or folder from the VM; run it again to resume",
			Long: "Download a file or folder from the VM and check it by SHA-256. If the download is stopped or the connection breaks, run the same command again to resume it.\n" +
				"Without LOCAL, the download goes into the current folder under the last part of REMOTE (for /content: under the runtime's name). If LOCAL is a folder or ends in a slash, the download goes into it.\n" +
				"A folder becomes LOCAL itself if nothing is there, or if an earlier run of the same download created it. It is not merged into any other folder unless you give --overwrite. If that folder has exactly the same files already, nothing is written.\n" +
				"Files and folders in it whose names begin with a dot, instruction files of agents such as CLAUDE.md, and files named HEAD, are left out, because programs on this computer may obey them; a note lists them. With --dotfiles, they are downloaded too.",
			Examples: "  colab-relay get /content/model.pt\n  colab-relay get results plots/           # a folder, into the folder plots\n  colab-relay get log.txt --json"},
	}, func(ctx context.Context, c *call, args downloadArgs) (*Download, error) {
		to, err := c.downloadTo(args)
		if err != nil {
			return nil, err
		}
		to.Runtime, to.Dotfiles = c.target.Name, args.Dotfiles
		r, m, err := c.move(ctx, args.Remote, args.Overwrite, func(ctx context.Context, o transfer.Options) (transfer.Result, error) {
			return transfer.Download(ctx, c.target.Client, args.Remote, to, o)
		})
		if r.Path == "" && err != nil {
			return nil, err
		}
		remedy := "dotfiles=true downloads them too"
		switch {
		case c.person != nil:
			remedy = "--dotfiles downloads them too"
		case to.NoObeyed:
			remedy = "this folder gets none of those, and LOCAL_SAVE_DIR gets them with dotfiles=true"
		}
		if note := r.LeftOut.Note(remedy); note != "" {
			m.Notes = append([]string{note}, m.Notes...)
		}
		return &Download{Moved: m, LocalPath: shownPath(r.Path)}, err
	})
}

// downloadTo returns the place of a download. A person may write anywhere.
func (c *call) downloadTo(args downloadArgs) (to transfer.Local, err error) {
	if c.person != nil {
		local, err := filename.Typed(args.Local)
		if err != nil {
			return to, &ArgumentError{"", "LOCAL", err}
		}
		base := filepath.Base(local)
		if local == "" || base == "." || base == ".." || base == string(filepath.Separator) || strings.HasSuffix(local, "/") || os.IsPathSeparator(local[len(local)-1]) {
			return transfer.Local{Dir: filepath.Clean(local)}, nil
		}
		return transfer.Local{Dir: filepath.Dir(local), Name: base}, nil
	}
	to, err = c.cfg.destination(args.Local)
	if err == nil && args.Local == "" { // it gets the remote name
		_, err = c.cfg.belowSaveDir(path.Base(args.Remote))
	}
	return to, hint.With(hint.Transfer, "", err)
}

// shownPath returns a local path for an answer: JSON can't contain bytes that are not UTF-8.
func shownPath(path string) string {
	if utf8.ValidString(path) {
		return path
	}
	return contract.EscapeName(path)
}

// destination returns the place that local_filename names. A relative one is below SaveDir,
// which the transfer makes sure of. An absolute one is in SaveDir or one of DownloadDirs.
func (cfg *Config) destination(name string) (transfer.Local, error) {
	full, err := filename.Typed(name)
	if err != nil {
		return transfer.Local{}, err
	}
	if !filepath.IsAbs(full) {
		return cfg.belowSaveDir(name)
	}
	folder := ""
	if os.IsPathSeparator(full[len(full)-1]) {
		folder = "/"
	}
	obeyed := ""
	for _, root := range append([]string{cfg.SaveDir}, cfg.DownloadDirs...) {
		rel, real, ok := relativeTo(root, full)
		if !ok {
			continue
		}
		if part := cmp.Or(filename.ObeyedPart(filepath.ToSlash(rel)), filename.ObeyedPart(filepath.ToSlash(real))); part != "" && root != cfg.SaveDir {
			obeyed = part
			continue
		}
		if rel = filepath.ToSlash(rel); rel == "." {
			rel, folder = "", ""
		}
		if root == cfg.SaveDir {
			return cfg.belowSaveDir(rel + folder)
		}
		return transfer.Local{Dir: root, Name: rel + folder, NoObeyed: true}, nil
	}
	if obeyed != "" {
		return transfer.Local{}, fmt.Errorf("%w: %q has the part %q, and programs may obey files of such names; %s", transfer.ErrForbiddenName, name, obeyed, cfg.downloadRule())
	}
	return transfer.Local{}, fmt.Errorf("%w: %q is outside the folders for downloads; %s", transfer.ErrForbiddenName, name, cfg.downloadRule())
}

// belowSaveDir is a place below SaveDir, but not where the relay saves what runs print and display.
func (cfg *Config) belowSaveDir(name string) (transfer.Local, error) {
	first, _, _ := strings.Cut(filepath.ToSlash(filepath.Clean(name)), "/")
	if strings.EqualFold(first, render.Executions) {
		return transfer.Local{}, fmt.Errorf("%w: %q is where the relay saves the output of runs; choose another name", transfer.ErrForbiddenName, name)
	}
	return transfer.Local{Dir: cfg.SaveDir, Name: name}, nil
}

// downloadRule says where downloads may go.
func (cfg *Config) downloadRule() string {
	if len(cfg.DownloadDirs) == 0 {
		return fmt.Sprintf("allowed is LOCAL_SAVE_DIR %q; RELAY_DOWNLOAD_DIRS, which allows other folders, is empty", cfg.SaveDir)
	}
	return fmt.Sprintf("allowed are LOCAL_SAVE_DIR %q and, without parts that programs may obey, such as .git, RELAY_DOWNLOAD_DIRS %q", cfg.SaveDir, cfg.DownloadDirs)
}

// relativeTo returns a path relative to a folder that it is in. The folder, and what exists
// of the path above its last part, may be spelled through links. real is the same without
// links, if that is inside too.
func relativeTo(root, path string) (rel, real string, ok bool) {
	realRoot, err := filepath.EvalSymlinks(root)
	if err != nil { // it does not exist yet
		rel, ok = inside(root, path)
		return rel, "", ok
	}
	real, _ = inside(realRoot, realParent(path))
	if rel, ok = inside(root, path); ok {
		return rel, real, true
	}
	if rel, ok = inside(realRoot, path); ok {
		return rel, real, true
	}
	return real, real, real != ""
}

// inside returns a path relative to a folder, if it is in it.
func inside(root, path string) (rel string, ok bool) {
	rel, err := filepath.Rel(root, path)
	if err != nil || !filepath.IsLocal(rel) {
		return "", false
	}
	return rel, true
}

// realParent follows the links of a path's folder as far as it exists.
func realParent(path string) string {
	dir := filepath.Dir(path)
	if dir == path {
		return path
	}
	if real, err := filepath.EvalSymlinks(dir); err == nil {
		return filepath.Join(real, filepath.Base(path))
	}
	return filepath.Join(realParent(dir), filepath.Base(path))
}

func (d *Download) text(w *words) {
	d.Moved.text(w, w.either(plain.Word(d.LocalPath), plain.Line(d.LocalPath)))
}

// UploadArgs are the arguments of an upload. `colab-relay put` makes them from its own.
type UploadArgs struct {
	Local     string          `json:"local_path" min:"1" max:"4096" doc:"File or folder on this computer: absolute, beginning with ~/, or below LOCAL_SAVE_DIR."`
	Remote    string          `json:"remote_path" default:"" max:"4096" doc:"Path on the VM, or a folder if it ends in /; default: the local name in /content. Folders are created."`
	Overwrite bool            `json:"overwrite" default:"false" doc:"Replace a different file of that name. Needless for a file that was uploaded before and edited only here."`
	Guard     *transfer.Guard `json:"-"` // of a person; nil for none
	target
}

// Upload is the answer of upload_to_colab.
type Upload struct {
	RemotePath string `json:"remote_path"` // path of the file or folder on the VM, where it is or will be once it is complete
	Moved
}

func uploadToColab() Operation {
	return operation(spec{
		title:       "Upload to the VM",
		description: "Copies a file or folder of this computer to the VM, for code there; the VM itself downloads from the web faster. If it is not done, call again with the same arguments. It replaces what it uploaded before; another file there is an error. Files that usually contain keys or passwords are refused.",
	}, func(ctx context.Context, c *call, args UploadArgs) (*Upload, error) {
		local, remote, guard, err := args.Local, args.Remote, args.Guard, error(nil)
		if c.person == nil {
			guard = c.cfg.Guard
			if local, err = localPath(c.cfg.SaveDir, args.Local); err == nil {
				remote, err = transfer.UploadPath(args.Remote, runtime.GOOS)
			}
			if err != nil {
				return nil, hint.With(hint.Transfer, "", err)
			}
		}
		known := c.target.Client.InstanceID()
		r, m, err := c.move(ctx, args.Local, args.Overwrite, func(ctx context.Context, o transfer.Options) (transfer.Result, error) {
			o.Guard = guard
			return transfer.Upload(ctx, c.target.Client, local, remote, o)
		})
		if known != "" && c.target.Client.InstanceID() != known {
			c.warn("The VM behind this address is a new one, and the upload went there: the old VM's files are gone, except those on Drive.")
		}
		if r.Path == "" && err != nil {
			return nil, err
		}
		if m.Status == moveDone && r.Replaced > 0 {
			m.Notes = append(m.Notes, "if the kernel has imported the earlier version of this module, "+c.either("importlib.reload or restart_kernel loads the new code",
				"`colab-relay run FILE` and `colab-relay run --with` load the new one; cells and `colab-relay run -c` keep the earlier one until importlib.reload or `colab-relay restart`"))
		}
		return &Upload{Moved: m, RemotePath: plain.Name(r.Path)}, err
	})
}

// localPath resolves a path as a model may write it. A relative one begins at dir: the
// relay's working directory is the host's choice and means nothing to a user.
func localPath(dir, name string) (string, error) {
	below := func(path string) string {
		if filepath.IsAbs(path) {
			return path
		}
		return filepath.Join(dir, path)
	}
	if _, err := os.Lstat(below(name)); err == nil {
		return below(name), nil
	}
	path, err := filename.Typed(name)
	return below(path), err
}

func (u *Upload) text(w *words) {
	u.Moved.text(w, w.either(plain.WordName(u.RemotePath), u.RemotePath))
}
