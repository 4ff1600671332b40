package remoterun

import (
	"context"
	"fmt"
	"io"

	"colabrelay/relay/output"
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

// pictureOf returns the type of the best picture of an event; empty if there is none.
func pictureOf(ev contract.Event) string {
	for _, mime := range pictureKinds {
		if ev.Data[mime] != nil {
			return mime
		}
	}
	return ""
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

// savePicture saves a picture of the execution id, and returns the file's path.
func (p *printer) savePicture(ctx context.Context, id, mime string, ev contract.Event) (path string, err error) {
	raw := ev.Data[mime]
	if p.saved += max(output.PayloadBytes(raw), 0); p.saved > maxPictureBytes {
		return "", fmt.Errorf("this run's pictures exceed %d GiB", maxPictureBytes>>30)
	}
	return render.SavePayload(render.Folder(p.pictureDir, "", id), ev.Offset, mime, raw, func(w io.Writer) error {
		return output.WritePayload(ctx, mime, raw, p.blobs(id), w)
	})
}
