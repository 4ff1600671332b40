package remoterun

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"hash/crc32"
	"image"
	"image/png"
	"io"
	"os"
	"regexp"
	"strings"
	"testing"

	"colabrelay/relay/plain"
	"colabrelay/relay/terminal"
	"colabrelay/relay/terminal/inline"
	"colabrelay/shared/contract"
	"colabrelay/shared/e2e/harness"
)

// onTerminal returns a printer as on a terminal of iTerm2, and what it prints.
func onTerminal(t *testing.T) (*printer, *harness.Output, *harness.Output) {
	t.Helper()
	var out, errs harness.Output
	p := newPrinter(func(string) func(context.Context, contract.Blob, io.Writer) error { return nil },
		Console{Streams: terminal.Streams{In: strings.NewReader(""), Out: &out, Err: &errs}, PictureDir: t.TempDir(), Pictures: inline.ITerm})
	p.out, p.err = &plain.Terminal{}, &plain.Terminal{}
	return p, &out, &errs
}

func encoded(t *testing.T, width, height int) []byte {
	t.Helper()
	var buf bytes.Buffer
	if err := png.Encode(&buf, image.NewGray(image.Rect(0, 0, width, height))); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

func display(t *testing.T, p *printer, offset int64, mime string, data []byte) {
	t.Helper()
	text := string(data)
	if mime != "image/svg+xml" {
		text = base64.StdEncoding.EncodeToString(data)
	}
	payload, err := json.Marshal(text)
	if err != nil {
		t.Fatal(err)
	}
	p.event(t.Context(), "run", contract.Event{Offset: offset, Type: contract.EventDisplayData, Data: map[string]json.RawMessage{mime: payload}})
}

var shownPicture = regexp.MustCompile(`\x1b\]1337;File=inline=1;size=\d+:([A-Za-z0-9+/=]+)\a\n`)

// chunkOf is a chunk of a PNG.
func chunkOf(kind, content string) []byte {
	chunk := binary.BigEndian.AppendUint32(nil, uint32(len(content)))
	chunk = append(chunk, kind+content...)
	return binary.BigEndian.AppendUint32(chunk, crc32.ChecksumIEEE(chunk[4:]))
}

// A terminal may interpret what is hidden in a picture, such as its comments.
func TestNothingOfAHostilePictureReachesTheTerminalButItsPixels(t *testing.T) {
	const hidden = "hidden \x1b]0;evil\a"
	plainPNG := encoded(t, 1600, 10)
	head := len(plainPNG) - 12 // the last chunk, IEND
	for name, data := range map[string][]byte{
		"as it is":      plainPNG,
		"comment":       append(append(append([]byte{}, plainPNG[:head]...), chunkOf("tEXt", "Comment\x00"+hidden)...), plainPNG[head:]...),
		"after the end": append(append([]byte{}, plainPNG...), hidden...),
	} {
		p, out, errs := onTerminal(t)
		display(t, p, 3, "image/png", data)
		found := shownPicture.FindStringSubmatch(out.String())
		if found == nil || found[0] != out.String() {
			t.Errorf("%s: the terminal got %.200q", name, out.String())
			continue
		}
		drawn, err := base64.StdEncoding.DecodeString(found[1])
		if err != nil || bytes.Contains(drawn, []byte("hidden")) {
			t.Errorf("%s: %v, or the terminal got the hidden text", name, err)
		}
		if cfg, err := png.DecodeConfig(bytes.NewReader(drawn)); err != nil || cfg.Width != shownEdge || cfg.Height != 5 {
			t.Errorf("%s: it shows %+v, %v", name, cfg, err)
		}
		saved := regexp.MustCompile(`^colab-relay: saved a picture as (\S+)\n$`).FindStringSubmatch(errs.String())
		if saved == nil {
			t.Fatalf("%s: %q", name, errs.String())
		}
		if kept, err := os.ReadFile(saved[1]); err != nil || !bytes.Equal(kept, data) {
			t.Errorf("%s: the saved picture differs, %v", name, err)
		}
	}
}

func TestAPictureThatCannotBeShownIsSaved(t *testing.T) {
	bomb := encoded(t, 1, 1)
	copy(bomb[16:24], "\x00\x00\xff\xff\x00\x00\xff\xff") // width and height
	binary.BigEndian.PutUint32(bomb[29:], crc32.ChecksumIEEE(bomb[12:29]))
	for name, c := range map[string]struct {
		mime string
		data []byte
	}{
		"four billion pixels": {"image/png", bomb},
		"no picture":          {"image/png", []byte("\x1b]0;evil\a")},
		"vector":              {"image/svg+xml", []byte("<svg>\x1b]0;evil\a</svg>")},
	} {
		p, out, errs := onTerminal(t)
		display(t, p, 1, c.mime, c.data)
		if out.String() != "" || !strings.HasPrefix(errs.String(), "colab-relay: saved a picture as ") {
			t.Errorf("%s: %q %q", name, out.String(), errs.String())
		}
	}
}
