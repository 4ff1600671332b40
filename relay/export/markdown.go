package export

import (
	"context"
	"encoding/base64"
	"fmt"
	"net/url"
	"strings"

	"colabrelay/relay/output"
	"colabrelay/relay/plain"
	"colabrelay/relay/render"
)

// pictures are the MIME types that Markdown shows, best first, with their files' extensions.
var pictures = []struct{ mime, ext string }{
	{"image/png", ".png"}, {"image/jpeg", ".jpg"}, {"image/gif", ".gif"}, {"image/svg+xml", ".svg"},
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
func markdown(ctx context.Context, stem string, runs []Run) (document, error) {
	p := page{stem: stem, files: map[string][]byte{}}
	for i, c := range cells(ctx, runs, &output.Collector{WidgetTexts: true}) {
		fmt.Fprintf(&p.text, "## Run %d: %s\n\n", i+1, markup.Replace(runs[i].title()))
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
	for _, kind := range pictures {
		if content := decoded(kind.mime, o.Data[kind.mime]); content != nil {
			p.files[name+kind.ext] = content
			target := url.URL{Path: name + kind.ext}
			fmt.Fprintf(&p.text, "![](%s)\n\n", strings.NewReplacer("(", "%28", ")", "%29").Replace(target.EscapedPath()))
			return
		}
	}
	if text, ok := o.Data["text/plain"].(string); ok && text != "" { // a closed widget shows nothing
		p.fence("", render.Plain(text))
	}
}

// decoded returns a picture's bytes, or nil if there is none.
func decoded(mime string, payload any) []byte {
	text, ok := payload.(string)
	if !ok || text == "" {
		return nil
	}
	if !output.IsBase64(mime) {
		return []byte(text)
	}
	content, err := base64.StdEncoding.DecodeString(strings.NewReplacer("\n", "", "\r", "", " ", "").Replace(text))
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
