package runs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"

	"colabrelay/relay/cli"
	"colabrelay/relay/client"
	"colabrelay/relay/config"
	"colabrelay/relay/plain"
	"colabrelay/relay/remoterun"
	"colabrelay/relay/transfer"
	"colabrelay/shared/contract"
	"colabrelay/shared/filename"
	"colabrelay/shared/lazy"
)

// companion is a file or folder that a run brings along.
type companion struct {
	local  string
	remote string // relative to the executor's working directory
}

// companions are what --with names, and how they are uploaded.
type companions struct {
	file    string // the program or notebook; empty for other code
	program bool   // file is a program
	all     []companion
	options transfer.Options
}

// companions checks what --with names. file is the program or notebook; without one, the places
// of the companions are relative to the current folder.
func (o *runOptions) companions(ctx context.Context, file string) (companions, error) {
	c := companions{file: file}
	cfg := config.Load(*o.Set)
	if err := cfg.Err(); err != nil {
		return c, err
	}
	c.options = transfer.Options{Guard: cfg.Guard, RecordDir: cfg.TransferDir, ResumeDir: transfer.ResumeDir(cfg.CheckpointDir)}
	from := map[string]string{}
	for _, local := range o.with {
		if local == "" {
			return c, cli.Usagef("--with is empty: name a file or folder on this computer")
		}
		local, err := filename.Existing(local)
		if err != nil {
			return c, cli.AsUsage(fmt.Errorf("--with: %w", err))
		}
		remote, err := placeBeside(file, local)
		if err != nil {
			return c, fmt.Errorf("--with %q: %w", local, err)
		}
		if other, twice := from[remote]; twice && other != local {
			return c, cli.Usagef("--with %q and --with %q: both would be %q on the VM", other, local, remote)
		}
		from[remote] = local
		switch err := transfer.CheckUpload(ctx, local, cfg.Guard); {
		case errors.Is(err, transfer.ErrGuarded):
			return c, fmt.Errorf("--with: %v; to upload it anyway, run `%s`", err, o.put("--force", local))
		case err != nil:
			return c, fmt.Errorf("--with: %w", err)
		}
		c.all = append(c.all, companion{local, remote})
	}
	return c, nil
}

// placeBeside returns where on the VM a companion of file lies: what is beside or below file keeps
// its place relative to it, anything else gets its own name.
func placeBeside(file, local string) (string, error) {
	base, err := filepath.Abs(filepath.Dir(file)) // of "" it is the current folder
	if err != nil {
		return "", err
	}
	full, err := filepath.Abs(local)
	if err != nil {
		return "", err
	}
	place, err := filepath.Rel(base, full)
	if err != nil || !filepath.IsLocal(place) {
		place = filepath.Base(full)
	}
	parts := strings.Split(filepath.ToSlash(place), "/")
	for i, part := range parts {
		parts[i] = contract.EscapeName(part)
	}
	return strings.Join(parts, "/"), nil
}

// upload uploads the companions and shows the progress.
func (o *runOptions) upload(ctx context.Context, vm *client.Client, c companions) error {
	for _, each := range c.all {
		r, err := cli.ShowTransfer(ctx, o.Std, each.local, func(report func(transfer.Progress)) (transfer.Result, error) {
			options := c.options
			options.Report = report
			return transfer.Upload(ctx, vm, each.local, each.remote, options)
		})
		for _, note := range r.Notes {
			fmt.Fprintf(o.Std.Err, "note: %s\n", plain.Line(note))
		}
		switch {
		case errors.Is(err, transfer.ErrExists) && each.remote == ".":
			return fmt.Errorf("%v; to replace a file there, name it with --with: the error then says how", err)
		case errors.Is(err, transfer.ErrExists):
			return fmt.Errorf("%v; to replace it, run `%s`, then run the code again", err, o.put("--overwrite", "--to", path.Dir(each.remote), each.local))
		case err != nil:
			return err
		}
	}
	return nil
}

// has reports whether a local path is, or lies in, one of the companions.
func (c companions) has(path string) bool {
	full, err := filepath.Abs(path)
	for _, each := range c.all {
		folder, failed := filepath.Abs(each.local)
		if place, outside := filepath.Rel(folder, full); err == nil && failed == nil && outside == nil && filepath.IsLocal(place) {
			return true
		}
	}
	return false
}

// moduleName is a name that an import statement can have.
var moduleName = lazy.Regexp(`^[\pL_][\pL\pN_]*(\.[\pL_][\pL\pN_]*)*$`)

// helpWithModule says how a module gets to the VM if the code did not find it there, and this
// computer's Python would find it for file: beside it, in the current folder or in PYTHONPATH.
func (o *runOptions) helpWithModule(err error, file string, along companions) {
	missing, ok := errors.AsType[*remoterun.NoModuleError](err)
	if !ok || !moduleName().MatchString(missing.Module) {
		return
	}
	folders := append([]string{filepath.Dir(file), "."}, filepath.SplitList(o.Set.Getenv("PYTHONPATH"))...)
	for _, folder := range folders {
		path, found := localModule(folder, missing.Module)
		if !found {
			continue
		}
		if along.has(path) {
			fmt.Fprintf(o.Std.Err, "%s: %s was uploaded into the executor's working directory, but the kernel works in another one\n  next step: let the code add that folder to sys.path, or run `%s`\n", cli.CommandName, plain.Line(path), plain.Line(strings.Join(o.command("restart"), " ")))
			return
		}
		fmt.Fprintf(o.Std.Err, "%s: %s is on this computer, but not on the VM\n  next step: run `%s`, or add `%s` to this command\n", cli.CommandName, plain.Line(path), plain.Line(o.put(path)), plain.Line(withWords(path)))
		return
	}
}

// localModule returns the file or folder below folder that has the module: of a module in a
// package the whole package, because Python needs the rest of it too.
func localModule(folder, module string) (path string, found bool) {
	parts := strings.Split(module, ".")
	inside := filepath.Join(append([]string{folder}, parts...)...)
	info, err := os.Stat(inside + ".py")
	isFile := err == nil && info.Mode().IsRegular()
	own, _ := filepath.Glob(filepath.Join(inside, "*.py"))
	deeper, _ := filepath.Glob(filepath.Join(inside, "*", "*.py"))
	switch {
	case !isFile && len(own)+len(deeper) == 0:
		return "", false
	case isFile && len(parts) == 1:
		return inside + ".py", true
	}
	return filepath.Join(folder, parts[0]), true
}
