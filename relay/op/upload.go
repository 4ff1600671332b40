package op

import (
	"context"
	"os"
	"path/filepath"
	"runtime"

	"colabrelay/relay/hint"
	"colabrelay/relay/plain"
	"colabrelay/relay/transfer"
	"colabrelay/shared/filename"
)

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

func uploadToColab() tool {
	return operation(spec{
		title:       "Upload to the VM",
		summary:     "copies a file or folder to the VM; resumes, verifies and overwrites in the same way",
		description: "Copies a file or folder of this computer to the VM, for code there; the VM itself downloads from the web faster. If it is not done, call again with the same arguments. It replaces what it uploaded before; another file there is an error. Files that usually contain keys or passwords are refused.",
	}, func(ctx context.Context, c *call, args UploadArgs) (*Upload, error) {
		local, remote, guard, err := args.Local, args.Remote, args.Guard, error(nil)
		if c.person == nil {
			guard = c.cfg.Guard
			if local, err = localPath(c.cfg.SaveDir, args.Local); err == nil {
				remote, err = transfer.UploadPath(args.Remote, runtime.GOOS)
			}
			if err != nil {
				return nil, about(hint.Transfer, "", err)
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
		if m.CanContinue {
			m.NextCommand = command("upload_to_colab", "local_path", args.Local, "remote_path", args.Remote, "overwrite", args.Overwrite, "runtime_name", args.Runtime)
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
