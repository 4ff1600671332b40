package tools

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"unicode"

	"colabrelay/relay/hint"
	"colabrelay/relay/plain"
	"colabrelay/shared/contract"
)

type filesArgs struct {
	Path string `json:"path" default:"/content" max:"4096" doc:"Folder on the VM; /content means the working directory if it does not exist."`
	target
}

// Files is the answer of list_colab_files.
type Files struct {
	folder
	More string `json:"more,omitempty"` // if truncated: how to list the rest
}

// folder gives the embedded contract.Files a name that differs from its own field Files.
type folder = contract.Files

func listFiles() tool {
	return define(spec{
		name: "list_colab_files", title: "List files on the VM",
		summary:     "lists a folder on the VM",
		description: "Use it to find data and results on the remote VM: the names, sizes and times in one folder. Google Drive is /content/drive/MyDrive, if it was mounted in the notebook.",
		readOnly:    true, idempotent: true, openWorld: true,
	}, func(ctx context.Context, c *call, args filesArgs) (*Files, *Problem) {
		got, err := c.target.Client.Files(ctx, args.Path)
		if err != nil {
			return nil, problemAbout(hint.RemotePath, err)
		}
		for i := range got.Files {
			got.Files[i].Name = plain.Name(got.Files[i].Name)
		}
		kept, cut := fitList(got.Files)
		got.Files, got.Truncated = kept, got.Truncated || cut
		listed := &Files{folder: got}
		if got.Truncated {
			listed.More = moreFiles(got)
		}
		return listed, nil
	})
}

// moreFiles says how to list the entries that did not fit into an answer.
func moreFiles(f contract.Files) string {
	return fmt.Sprintf("Only the first %d of %d entries are listed. List a subfolder, or see the rest with run_code_quick: import os; print(sorted(os.listdir(%q))[%d:])",
		len(f.Files), f.FileCount+f.DirCount, f.Path, len(f.Files))
}

func (f *Files) text(b *strings.Builder) {
	fmt.Fprintf(b, "%s: %s, %s\n", f.Path, plain.Count(f.FileCount, "file"), plain.Count(f.DirCount, "folder"))
	for _, one := range f.Files {
		if one.IsDir {
			fmt.Fprintf(b, "%s/\n", one.Name)
			continue
		}
		fmt.Fprintf(b, "%s  %d bytes\n", one.Name, one.SizeBytes)
	}
	if f.More != "" {
		fmt.Fprintf(b, "[… %s …]\n", f.More)
	}
}

// oneLine quotes a name whose control characters would look like more entries.
func oneLine(name string) string {
	if strings.ContainsFunc(name, unicode.IsControl) {
		return strconv.Quote(name)
	}
	return name
}
