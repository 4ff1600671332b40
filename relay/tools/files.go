package tools

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"colabrelay/relay/hint"
	"colabrelay/relay/plain"
	"colabrelay/shared/contract"
	"colabrelay/shared/filename"
)

type filesArgs struct {
	Path string `json:"path" default:"/content" max:"4096" doc:"Folder on the VM; /content means the working directory if it does not exist."`
	target
}

// Files is the answer of list_colab_files.
type Files struct {
	folder
	More string `json:"more,omitempty"` // if truncated: how to list the rest

	escaped bool // a name has characters that are not shown
}

// folder gives the embedded contract.Files a name that differs from its own field Files.
type folder = contract.Files

func listFiles() tool {
	return define(spec{
		name: "list_colab_files", title: "List files on the VM",
		summary:     "lists a folder on the VM",
		description: "Use it to find files on the remote VM: names, sizes and times in one folder. Google Drive, if mounted, is /content/drive/MyDrive.",
		readOnly:    true, idempotent: true, openWorld: true,
	}, func(ctx context.Context, c *call, args filesArgs) (*Files, *Problem) {
		got, err := c.target.Client.Files(ctx, args.Path)
		if err != nil {
			return nil, problemAbout(hint.RemotePath, filename.Explain(err, args.Path))
		}
		listed := &Files{folder: got}
		for i, used := 0, 0; i < len(got.Files); i++ {
			if used > maxListBytes {
				got.Files, got.Truncated = got.Files[:i], true
				break
			}
			f := &got.Files[i]
			listed.escaped = listed.escaped || plain.Name(f.Name) != f.Name
			f.Name, f.Path = plain.Name(f.Name), plain.Name(got.At(f.Name))
			used += len(f.Path)
		}
		kept, cut := fitList(got.Files)
		listed.Files, listed.Truncated = kept, got.Truncated || cut
		if listed.Truncated {
			listed.More = moreFiles(listed.folder)
		}
		listed.Path = plain.Name(got.Path)
		return listed, nil
	})
}

// moreFiles says how to list the entries that did not fit into an answer.
func moreFiles(f contract.Files) string {
	return fmt.Sprintf("Only the first %d of %d entries are listed. List a subfolder, or see the rest with run_code_quick: import os; print(sorted(os.listdir(%s))[%d:])",
		len(f.Files), f.FileCount+f.DirCount, pythonPath(f.Path), len(f.Files))
}

// pythonPath returns a path on the VM as Python writes it, in ASCII if it has characters that are
// not shown.
func pythonPath(path string) string {
	raw := contract.UnescapeName(path)
	switch {
	case !utf8.ValidString(raw):
		return "os.fsdecode(b" + asciiQuote([]byte(raw)) + ")"
	case plain.Name(path) != raw:
		return strconv.QuoteToASCII(raw)
	}
	return strconv.Quote(raw)
}

// asciiQuote is strconv.Quote with each byte that is not ASCII as \xNN.
func asciiQuote(text []byte) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, c := range text {
		if c >= utf8.RuneSelf {
			fmt.Fprintf(&b, `\x%02x`, c)
			continue
		}
		quoted := strconv.Quote(string(rune(c)))
		b.WriteString(quoted[1 : len(quoted)-1])
	}
	b.WriteByte('"')
	return b.String()
}

func (f *Files) text(b *words) {
	fmt.Fprintf(b, "%s: %s, %s\n", plain.WordName(f.Path), plain.Count(f.FileCount, "file"), plain.Count(f.DirCount, "folder"))
	if f.More != "" {
		b.WriteString(f.More + "\n")
	}
	if f.escaped {
		b.WriteString(`A \xNN in a name is a byte that cannot be shown; give the path as it is written here.` + "\n")
	}
	var list strings.Builder
	for _, one := range f.Files {
		if one.IsDir {
			fmt.Fprintf(&list, "%s/\n", one.Name)
			continue
		}
		fmt.Fprintf(&list, "%s  %d bytes, modified %s\n", one.Name, one.SizeBytes, one.Modified.UTC().Format(time.RFC3339))
	}
	b.quote("entries", list.String())
}

// oneLine quotes a name whose control characters would look like more entries.
func oneLine(name string) string {
	if strings.ContainsFunc(name, unicode.IsControl) {
		return strconv.Quote(name)
	}
	return name
}
