package op

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"strings"
	"unicode"

	"colabrelay/relay/hint"
	"colabrelay/relay/plain"
	"colabrelay/relay/terminal"
	"colabrelay/shared/contract"
	"colabrelay/shared/filename"
	"colabrelay/shared/memory"
)

type filesArgs struct {
	Path string `json:"path" arg:"[PATH]" default:"/content" max:"4096" doc:"Folder on the VM; /content means the working directory if it does not exist."`
	All  bool   `json:"-" default:"false" flag:"all,a" usage:"also list names that begin with a dot, as --json does"`
	target
}

// Files is the answer of list_colab_files.
type Files struct {
	folder
	More string `json:"more,omitempty"` // if truncated: how to list the rest

	escaped bool // a name has characters that are not shown
	all     bool // a person wants hidden files too
}

// folder gives the embedded contract.Files a name that differs from its own field Files.
type folder = contract.Files

// maxPages bounds how many answers of up to contract.MaxListFiles entries make a person's listing.
const maxPages = 10

func listFiles() Operation {
	return operation(spec{
		title:       "List files on the VM",
		description: "Use it to find files on the remote VM: names, sizes and times in one folder. Google Drive, if mounted, is /content/drive/MyDrive.",
		Command: Command{Group: "files",
			Short: "List a folder on the VM",
			Long: "List a folder or file on the VM: size, time of the last change, and name. Without PATH, it lists /content, or the executor's working directory if the VM has no /content. The name of a folder ends in a slash. A byte that cannot be shown stands in a name as \\xNN, which all commands take.\n" +
				fmt.Sprintf("At most %d entries are listed; a note says if there are more.", maxPages*contract.MaxListFiles),
			Examples: "  colab-relay ls\n  colab-relay ls -a /content/drive/MyDrive\n  colab-relay ls results --json"},
	}, func(ctx context.Context, c *call, args filesArgs) (*Files, error) {
		got, err := c.listFolder(ctx, args.Path)
		if err != nil {
			return nil, hint.With(hint.RemotePath, args.Path, filename.Explain(err, args.Path))
		}
		listed := &Files{folder: got, all: args.All}
		for i, used := 0, 0; i < len(got.Files); i++ {
			if used > maxListBytes && c.person == nil {
				got.Files = got.Files[:i]
				break
			}
			f := &got.Files[i]
			listed.escaped = listed.escaped || plain.Name(f.Name) != f.Name
			f.Name, f.Path = plain.Name(f.Name), plain.Name(cmp.Or(f.Path, got.At(f.Name)))
			used += len(f.Path)
		}
		kept := fit(c, got.Files)
		listed.Truncated = got.Truncated || len(kept) < len(listed.Files)
		if listed.Files = kept; listed.Truncated {
			listed.More = c.moreFiles(listed.folder)
		}
		listed.Path = plain.Name(got.Path)
		return listed, nil
	})
}

// listFolder reads a folder, or the entry of a file: for a person all of it, for a model as much as
// an answer of the VM has.
func (c *call) listFolder(ctx context.Context, path string) (contract.Files, error) {
	pages := 1
	if c.person != nil {
		pages = maxPages
	}
	all, err := readPages(pages, func(after string) (contract.Files, error) { return c.target.Client.FilesAfter(ctx, path, after) })
	if refusalCode(err) == contract.CodeBadRequest {
		if file, err := c.target.Client.Stat(ctx, path, false, 0); err == nil && !file.IsDir {
			return contract.Files{Path: file.Path, FileCount: 1, Files: []contract.File{file.File}}, nil
		}
	}
	return all, err
}

// readPages reads up to most answers, or as many as there is memory for. Truncated says whether
// there is more.
func readPages(most int, read func(after string) (contract.Files, error)) (contract.Files, error) {
	all, err := read("")
	for page := 1; err == nil && all.Truncated && len(all.Files) > 0 && page < most && hasRoom(all); page++ {
		var next contract.Files
		next, err = read(all.Files[len(all.Files)-1].Name)
		all.Files, all.Truncated = append(all.Files, next.Files...), next.Truncated
	}
	return all, err
}

// hasRoom reports whether the paths of a list, as JSON has them, take less than the memory of all
// lists. A VM can make them long.
func hasRoom(f contract.Files) bool {
	size := int64(0)
	for _, one := range f.Files {
		size += int64(len(f.Path) + 2*len(one.Name))
	}
	return size < memory.Trees.Most()/2
}

// moreFiles says that not all entries are listed, and to a model how to list the others.
func (c *call) moreFiles(f contract.Files) string {
	only := fmt.Sprintf("Only the first %d of %d entries are listed.", len(f.Files), f.FileCount+f.DirCount)
	if c.person != nil {
		return only
	}
	return only + " List a subfolder, or see the rest with run_code_quick: os.listdir."
}

func (f *Files) text(w *words) {
	if w.person == nil {
		fmt.Fprintf(w, "%s: %s, %s\n", plain.WordName(f.Path), plain.Count(f.FileCount, "file"), plain.Count(f.DirCount, "folder"))
	}
	if f.More != "" {
		w.note("%s", f.More)
	}
	if f.escaped {
		w.note(`A \xNN in a name is a byte that cannot be shown; give the path as it is written here.`)
	}
	table := terminal.NewTable(terminal.Column{Title: w.either("BYTES", "SIZE"), Right: true}, terminal.Column{Title: "MODIFIED"}, terminal.Column{Title: "NAME"})
	shown := 0
	for _, one := range f.Files {
		if w.person != nil && !f.all && strings.HasPrefix(one.Name, ".") {
			continue
		}
		shown++
		size, name := w.bytes(one.SizeBytes), one.Name
		switch {
		case one.IsDir:
			size, name = "-", name+"/"
		case one.Special:
			size = "special"
		}
		table.Add(size, w.when(one.Modified), name)
	}
	switch {
	case shown > 0:
		w.table("entries", table)
	case len(f.Files) == 0:
		w.note("%s is empty", f.Path)
	default:
		w.note("%s has only hidden files; `colab-relay ls --all` lists them", f.Path)
	}
}

// oneLine quotes a name whose control characters would look like more entries.
func oneLine(name string) string {
	if strings.ContainsFunc(name, unicode.IsControl) {
		return strconv.Quote(name)
	}
	return name
}
