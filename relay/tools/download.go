package tools

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"unicode/utf8"

	"colabrelay/relay/transfer"
	"colabrelay/shared/contract"
)

type downloadArgs struct {
	Remote    string `json:"remote_path" min:"1" max:"4096" doc:"File or folder on the VM."`
	Local     string `json:"local_filename" default:"" max:"4096" doc:"Name below LOCAL_SAVE_DIR, such as run1/model.bin, or a folder if it ends in /. By default the remote name."`
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
		description: "Use it to copy a file or folder of the VM to this computer, below LOCAL_SAVE_DIR: the VM's disk is deleted with the VM. A large one may take several calls: with status \"partial\" call again with the same arguments. For many small files, download their folder.",
		idempotent:  true, openWorld: true, bulk: true,
	}, func(ctx context.Context, c *call, args downloadArgs) (*Download, *Problem) {
		to := transfer.Local{Dir: c.cfg.SaveDir, Name: belowSaveDir(c.cfg.SaveDir, args.Local), Runtime: c.target.Name}
		r, m, problem := c.move(ctx, args.Overwrite, func(ctx context.Context, o transfer.Options) (transfer.Result, error) {
			return transfer.Download(ctx, c.target.Client, args.Remote, to, o)
		})
		if r.Path == "" && problem != nil {
			return nil, problem
		}
		if m.CanContinue {
			m.NextCommand = command("download_from_colab", "remote_path", args.Remote, "local_filename", args.Local, "overwrite", args.Overwrite, "runtime", args.Runtime)
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

// belowSaveDir turns an absolute name inside dir into a relative one, because models often
// repeat the local_path of an answer. It returns any other name as it is; the transfer
// refuses those that lead out of dir.
func belowSaveDir(dir, name string) string {
	if !filepath.IsAbs(name) {
		return name
	}
	rel, err := filepath.Rel(dir, name)
	if err != nil || !filepath.IsLocal(rel) {
		return name
	}
	switch {
	case rel == ".":
		return ""
	case os.IsPathSeparator(name[len(name)-1]):
		rel += "/"
	}
	return filepath.ToSlash(rel)
}

func (d *Download) text(b *strings.Builder) { d.Moved.text(b, "Downloaded", d.LocalPath) }
