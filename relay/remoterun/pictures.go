package remoterun

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"colabrelay/relay/render"
	"colabrelay/relay/terminal/inline"
	"colabrelay/shared/bounded"
	"colabrelay/shared/contract"
)

// pictureKinds are the MIME types that are saved as files, best first.
var pictureKinds = []string{"image/png", "image/jpeg", "image/gif", "image/svg+xml"}

// maxPictureBytes bounds the pictures of one run on the disk. Over hours, a run may show
// more than an executor keeps at any time.
const maxPictureBytes = 2 << 30

// picture is one MIME payload of an event.
type picture struct {
	name string
	mime string
	raw  json.RawMessage
}

// pictureOf returns the best picture of an event, if there is one.
func pictureOf(ev contract.Event) (picture, bool) {
	for _, mime := range pictureKinds {
		if raw, ok := ev.Data[mime]; ok {
			return picture{fmt.Sprintf("%d%s", ev.Offset, render.Extension(mime)), mime, raw}, true
		}
	}
	return picture{}, false
}

// Bounds of pictures shown on a terminal.
const (
	shownEdge     = 800 // pixels of the long edge
	maxShown      = 100 // of one run
	maxShownBytes = 32 << 20
)

// show shows a saved picture on the terminal, redrawn from its pixels. A picture that cannot
// be shown, such as an SVG, is only saved.
func (p *printer) show(ctx context.Context, path, mime string) {
	if p.shown++; p.shownAs == inline.None || p.out == nil || p.shown > maxShown || mime != "image/png" && mime != "image/jpeg" {
		return
	}
	original, err := bounded.Open(path)
	if err != nil {
		return
	}
	defer original.Close()
	if info, err := original.Stat(); err != nil || info.Size() > maxShownBytes {
		return
	}
	drawn, err := render.Redraw(ctx, original, shownEdge)
	if err != nil {
		return
	}
	p.endLine(p.std.Out)
	if _, err := io.WriteString(p.std.Out, p.out.Reset()+p.shownAs.Sequence(drawn)); err != nil {
		p.broken = err
	}
	p.openLine = false
}

// pictureFolder saves pictures below dir, at most maxPictureBytes.
type pictureFolder struct {
	dir   string
	saved int64 // bytes
}

// save writes a picture of the execution id, which fetch reads if it is a blob, and returns
// the file's path.
func (f *pictureFolder) save(ctx context.Context, fetch render.Fetch, id string, pic picture) (path string, err error) {
	if !contract.RequestIDPattern.MatchString(id) || strings.Trim(id, ".") == "" { // it becomes the name of a folder
		return "", fmt.Errorf("the execution id %.40q cannot be used as a name", id)
	}
	if f.saved += max(render.PayloadBytes(pic.raw), 0); f.saved > maxPictureBytes {
		return "", fmt.Errorf("this run's pictures exceed %d GiB", maxPictureBytes>>30)
	}
	dir := filepath.Join(f.dir, "executions", id)
	if err := render.Room(dir, max(render.PayloadBytes(pic.raw), 0)); err != nil {
		return "", err
	}
	return render.SaveNew(dir, pic.name, func(w io.Writer) error {
		return render.WritePayload(ctx, pic.mime, pic.raw, fetch, w)
	})
}
