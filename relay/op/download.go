package op

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"
	"unicode/utf8"

	"colabrelay/relay/hint"
	"colabrelay/relay/plain"
	"colabrelay/relay/render"
	"colabrelay/relay/transfer"
	"colabrelay/shared/contract"
	"colabrelay/shared/filename"
)

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

func downloadFromColab() tool {
	return operation(spec{
		title:       "Download from the VM",
		summary:     "copies a file or folder to the laptop; resumes, verifies the SHA-256, and overwrites a different file only if asked",
		description: "Copies a file or folder of the VM to this computer, below LOCAL_SAVE_DIR or into a folder that the user allowed: the VM's disk is deleted with the VM. If it is not done, call again with the same arguments. For many small files, download their folder.",
		command: Command{Group: "files", Setting: "CHECKPOINT_DIR",
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
		if m.CanContinue {
			m.NextCommand = command("download_from_colab", "remote_path", args.Remote, "local_filename", args.Local, "dotfiles", args.Dotfiles, "overwrite", args.Overwrite, "runtime_name", args.Runtime)
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
	return to, about(hint.Transfer, "", err)
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
