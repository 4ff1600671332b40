package tools

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"
	"unicode/utf8"

	"colabrelay/relay/plain"
	"colabrelay/relay/render"
	"colabrelay/relay/transfer"
	"colabrelay/shared/contract"
	"colabrelay/shared/filename"
)

type downloadArgs struct {
	Remote    string `json:"remote_path" min:"1" max:"4096" doc:"File or folder on the VM."`
	Local     string `json:"local_filename" default:"" max:"4096" doc:"Name below LOCAL_SAVE_DIR, or path in the project; a folder if it ends in /. By default the remote name."`
	Dotfiles  bool   `json:"dotfiles" default:"false" rare:"" doc:"Of a folder also dot files and agents' instructions."`
	Overwrite bool   `json:"overwrite" default:"false" doc:"Replace a different file of that name; otherwise the new one gets a number, such as \"model (1).bin\"."`
	target
}

// Download is the answer of download_from_colab.
type Download struct {
	Moved
	LocalPath string `json:"local_path"` // path of the file or folder on the relay's machine, where it is or will be once it is complete
}

func downloadFromColab() tool {
	return define(spec{
		name: "download_from_colab", title: "Download from the VM",
		summary:     "copies a file or folder to the laptop; resumes, verifies the SHA-256, and overwrites a different file only if asked",
		description: "Copies a file or folder of the VM to this computer, below LOCAL_SAVE_DIR or into a folder that the user allowed: the VM's disk is deleted with the VM. If it is not done, call again with the same arguments. For many small files, download their folder.",
		idempotent:  true, openWorld: true, bulk: true,
	}, func(ctx context.Context, c *call, args downloadArgs) (*Download, *Problem) {
		to, err := c.cfg.destination(args.Local)
		if err == nil && args.Local == "" { // it gets the remote name
			_, err = c.cfg.belowSaveDir(path.Base(args.Remote))
		}
		if err != nil {
			return nil, transferProblem(err)
		}
		to.Runtime, to.Dotfiles = c.target.Name, args.Dotfiles
		r, m, problem := c.move(ctx, args.Overwrite, func(ctx context.Context, o transfer.Options) (transfer.Result, error) {
			return transfer.Download(ctx, c.target.Client, args.Remote, to, o)
		})
		if r.Path == "" && problem != nil {
			return nil, problem
		}
		if m.CanContinue {
			m.NextCommand = command("download_from_colab", "remote_path", args.Remote, "local_filename", args.Local, "dotfiles", args.Dotfiles, "overwrite", args.Overwrite, "runtime_name", args.Runtime)
		}
		remedy := "dotfiles=true downloads them too"
		if to.NoObeyed {
			remedy = "this folder gets none of those, and LOCAL_SAVE_DIR gets them with dotfiles=true"
		}
		if note := r.LeftOut.Note(remedy); note != "" {
			m.Notes = append([]string{note}, m.Notes...)
		}
		return &Download{Moved: m, LocalPath: shownPath(r.Path)}, problem
	})
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

func (d *Download) text(b *words) { d.Moved.text(b, "Downloaded", plain.Word(d.LocalPath)) }
