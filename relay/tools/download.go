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
	Remote    string `json:"remote_path" min:"1" max:"4096" doc:"File or folder on the VM. If /content does not exist, it means the executor's working directory."`
	Local     string `json:"local_filename" default:"" max:"4096" doc:"Name below LOCAL_SAVE_DIR, optionally with subfolders, such as run1/model.bin; if it ends in / it is a folder to put the download into. By default the name in remote_path, or the runtime's name for /content."`
	Overwrite bool   `json:"overwrite" default:"false" doc:"Replace a different file of that name. Without it the new file gets a number, such as \"model (1).bin\", and so does a new folder if one of that name exists that is not from the same download."`
	target
}

// Download is the answer of download_from_colab.
type Download struct {
	Moved
	LocalPath string `json:"local_path" doc:"Path of the file or folder on the relay's machine, where it is or will be once it is complete."`
}

func downloadFromColab() tool {
	return define(spec{
		name: "download_from_colab", title: "Download from the VM",
		description: "Copy a file or a whole folder from the VM to this computer, below LOCAL_SAVE_DIR; the answer gives the path. Use it for results worth keeping (models, data sets, archives), before the VM ends: its disk is deleted with it. " +
			"The copy is checked by SHA-256, and a different file of the same name is never replaced unless overwrite is true. " +
			"A large one may take several calls: with status \"partial\" (can_continue true) call again with the same arguments, and it resumes where it stopped, also after a lost connection. Files that exist already are skipped. For many small files a folder or an archive is faster than one by one.",
		idempotent: true, openWorld: true, bulk: true,
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
