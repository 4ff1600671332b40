// Package export writes runs as a document: a Jupyter notebook, Markdown with its pictures
// beside it, or Python.
//
// It must not choose runs, fetch anything itself, or name a file after what a VM sent. The same
// runs make the same bytes. Start reading at Format.
package export

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"colabrelay/relay/history"
	"colabrelay/relay/notebook"
	"colabrelay/relay/output"
	"colabrelay/relay/plain"
	"colabrelay/relay/progress"
	"colabrelay/relay/render"
	"colabrelay/shared/contract"
	"colabrelay/shared/keep"
)

// ErrExists: the file exists, and must not be replaced.
var ErrExists = errors.New("already exists")

// document is a document that is complete in memory, so that a fault leaves no partial file.
type document struct {
	text  []byte
	files map[string][]byte // pictures, by their name beside the text
}

// formats are the functions that make a document, by the extension of its file.
var formats = map[string]func(ctx context.Context, stem string, runs []history.Whole) (document, error){
	".ipynb": ipynb, ".md": markdown, ".py": python,
}

// Format returns the format of a file's name, or an error that names those there are.
func Format(path string) (string, error) {
	ext := strings.ToLower(filepath.Ext(path))
	if formats[ext] == nil {
		return "", fmt.Errorf("%q has no known extension: use .ipynb for a notebook, .md for Markdown or .py for Python", filepath.Base(path))
	}
	return ext, nil
}

// Write writes the runs to path, whose extension chooses the format. It replaces an existing
// file only with force. The file appears complete, by a rename.
func Write(ctx context.Context, path string, runs []history.Whole, force bool) error {
	ext, err := Format(path)
	if err != nil {
		return err
	}
	stem := strings.TrimSuffix(filepath.Base(path), filepath.Ext(path))
	if err := free(path, force); err != nil {
		return err
	}
	d, err := formats[ext](ctx, stem, runs)
	if err = cmp.Or(err, ctx.Err()); err != nil { // outputs that were not fetched any more are missing
		return err
	}
	dir := filepath.Dir(path)
	for name := range d.files {
		if err := free(filepath.Join(dir, name), force); err != nil {
			return err
		}
	}
	for name, content := range d.files { // first, so that the text refers to no missing picture
		if err := keep.WriteFile(filepath.Join(dir, name), content); err != nil {
			return err
		}
	}
	return keep.WriteFile(path, d.text)
}

// free returns an error if a file must not be written.
func free(path string, force bool) error {
	_, err := os.Lstat(path)
	switch {
	case err == nil && !force:
		return fmt.Errorf("%q %w", path, ErrExists)
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return err
	}
	return nil
}

// source returns a run's code, and says if it is not all of it.
func source(r *history.Whole) string {
	if r.CodeCut {
		return r.Code + "\n# The rest of this code was too long to be kept."
	}
	return strings.TrimRight(r.Code, "\n")
}

// title describes a run in one line.
func title(r *history.Whole) string {
	words := []string{r.CreatedAt.Local().Format("2006-01-02 15:04:05"), plain.Line(r.Runtime), plain.Line(string(r.Status))}
	if r.Name != "" {
		words = append([]string{plain.Line(r.Name)}, words...)
	}
	if r.StartedAt != nil && r.FinishedAt != nil {
		words = append(words, took(r.FinishedAt.Sub(*r.StartedAt)))
	}
	return strings.Join(words, ", ")
}

// took returns a duration as people write it, with tenths of a second below ten seconds.
func took(d time.Duration) string {
	if d < 10*time.Second {
		return fmt.Sprintf("%.1f s", max(d, 0).Seconds())
	}
	return progress.Duration(d)
}

// ending returns a line about a run that ended in a way that its output does not show.
func ending(r *history.Whole) string {
	switch r.Status {
	case contract.StatusSucceeded, contract.StatusFailed:
		return ""
	}
	return strings.TrimSuffix(fmt.Sprintf("[this run's status is %s: %s", plain.Line(string(r.Status)), plain.Line(r.Reason)), ": ") + "]\n"
}

// ipynb makes a notebook with a cell for each run. Characters that a reader of the file would not
// see are escapes there.
func ipynb(ctx context.Context, _ string, runs []history.Whole) (document, error) {
	var c output.Collector
	text, err := notebook.Notebook{Cells: cells(ctx, runs, &c), Widgets: c.Widgets()}.Text()
	return document{text: plain.EscapeJSON(text)}, err
}

// maxFetched bounds the payloads of all runs of a document together: a run's events may name one
// payload a million times.
const maxFetched = 256 << 20

// cells returns a cell with outputs for each run, which c collects.
func cells(ctx context.Context, runs []history.Whole, c *output.Collector) []notebook.RunCell {
	c.Limits = output.ForDocuments
	var collected []*output.Cell
	fetched := int64(0)
	for i, r := range runs {
		events := r.Events
		if text := ending(&r); text != "" {
			events = append(events[:len(events):len(events)], contract.Event{Type: contract.EventStream, Name: contract.Stderr, Text: text})
		}
		cell := c.Begin(strconv.Itoa(i))
		cell.Add(ctx, events, within(&r, &fetched))
		collected = append(collected, cell)
	}
	var all []notebook.RunCell
	for i, r := range runs { // now that a later run changes no outputs of an earlier one any more
		all = append(all, notebook.RunCell{
			Seed: r.ExecutionID, Source: source(&r), ExecutionCount: r.ExecutionCount, Outputs: collected[i].Outputs(),
		})
	}
	return all
}

var errTooMuch = errors.New("the payloads of the runs are too large together")

// within returns a Fetch that counts what it fetches, and refuses what is over maxFetched.
func within(r *history.Whole, fetched *int64) output.Fetch {
	if r.Fetch == nil {
		return nil
	}
	return func(ctx context.Context, blob contract.Blob, w io.Writer) error {
		if *fetched += blob.Bytes; *fetched > maxFetched {
			return errTooMuch
		}
		return r.Fetch(ctx, blob, w)
	}
}

// markup makes a text that a VM may have sent mean itself in a line of Markdown: no HTML, link
// or picture, which a viewer would fetch.
var markup = strings.NewReplacer("\\", `\\`, "<", `\<`, "[", `\[`, "]", `\]`, "`", "\\`", "&", `\&`, "://", `\://`, "www.", `www\.`)

// page is a Markdown text that is being made.
type page struct {
	text  strings.Builder
	stem  string // names the folder of the pictures
	files map[string][]byte
}

// markdown makes a text with a section for each run. Its pictures are files in the folder
// STEM_files beside it, as nbconvert names it.
func markdown(ctx context.Context, stem string, runs []history.Whole) (document, error) {
	p := page{stem: stem, files: map[string][]byte{}}
	for i, c := range cells(ctx, runs, &output.Collector{WidgetTexts: true}) {
		fmt.Fprintf(&p.text, "## Run %d: %s\n\n", i+1, markup.Replace(title(&runs[i])))
		p.fence("python", c.Source)
		if n := len(plain.Unshown(strings.ReplaceAll(c.Source, "\r\n", "\n"))); n > 0 {
			fmt.Fprintf(&p.text, "Characters of this code that are not shown: %d.\n\n", n)
		}
		for n, o := range c.Outputs {
			p.output(fmt.Sprintf("%s_files/%d-%d", stem, i+1, n+1), o)
		}
	}
	return document{text: []byte(p.text.String()), files: p.files}, nil
}

// output adds an output; name is its file without the extension, if it needs one.
func (p *page) output(name string, o *output.Output) {
	switch o.Type {
	case output.Stream:
		p.fence("", render.Plain(o.Text))
		return
	case output.Error:
		p.fence("", render.Plain(strings.Join(o.Traceback, "\n")))
		return
	}
	for _, mime := range output.Pictures {
		if content := decoded(mime, o.Data[mime]); len(content) > 0 {
			name += output.Extension(mime)
			p.files[name] = content
			target := url.URL{Path: name}
			fmt.Fprintf(&p.text, "![](%s)\n\n", strings.NewReplacer("(", "%28", ")", "%29").Replace(target.EscapedPath()))
			return
		}
	}
	if text, ok := o.Data["text/plain"].(string); ok && text != "" { // a closed widget shows nothing
		p.fence("", render.Plain(text))
	}
}

// decoded returns a picture's bytes; none if there is no picture.
func decoded(mime string, payload any) []byte {
	text, _ := payload.(string)
	raw, _ := json.Marshal(text) // a string is always JSON
	content, err := io.ReadAll(output.Decoded(mime, raw))
	if err != nil {
		return nil
	}
	return content
}

// fence adds a block of code whose fence is longer than any in the text. Like a terminal, whoever
// reads the page gets no control characters and no hidden ones.
func (p *page) fence(language, text string) {
	text = plain.Document(text)
	longest, run := 2, 0
	for i := range len(text) {
		if run++; text[i] != '`' {
			run = 0
		}
		longest = max(longest, run)
	}
	fence := strings.Repeat("`", longest+1)
	fmt.Fprintf(&p.text, "%s%s\n%s\n%s\n\n", fence, language, strings.TrimRight(text, "\n"), fence)
}

// python makes a program with a cell for each run, as editors know them by "# %%". Cell magics,
// lines of magics and of commands become comments, because they are not Python.
func python(_ context.Context, _ string, runs []history.Whole) (document, error) {
	var b strings.Builder
	for i, r := range runs {
		if i > 0 {
			b.WriteByte('\n')
		}
		fmt.Fprintf(&b, "# %%%% %s\n", title(&r))
		source := strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(source(&r)) // Python ends lines at \r too
		foreign := strings.HasPrefix(strings.TrimSpace(source), "%%")               // another language
		for line := range strings.SplitSeq(source, "\n") {
			if foreign || strings.HasPrefix(line, "%") || strings.HasPrefix(line, "!") {
				b.WriteString("# ")
			}
			b.WriteString(line + "\n")
		}
	}
	return document{text: []byte(b.String())}, nil
}
