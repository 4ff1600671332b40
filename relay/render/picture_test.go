package render

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"image"
	"image/color"
	"image/draw"
	"image/jpeg"
	"image/png"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"colabrelay/shared/memory"
	"colabrelay/shared/tier"
)

func encodePNG(t testing.TB, img image.Image) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := png.Encode(&b, img); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func noise(w, h int) *image.RGBA {
	img := image.NewRGBA(image.Rect(0, 0, w, h))
	r := rand.New(rand.NewPCG(1, 2))
	for i := 0; i < len(img.Pix); i += 4 {
		binary.LittleEndian.PutUint32(img.Pix[i:], r.Uint32()|255<<24)
	}
	return img
}

func noisePNG(t testing.TB, w, h int) []byte { return encodePNG(t, noise(w, h)) }

func tinyPNG(t testing.TB) []byte {
	img := image.NewRGBA(image.Rect(0, 0, 3, 2))
	img.Set(1, 1, color.RGBA{R: 255, A: 255})
	return encodePNG(t, img)
}

func TestShrinkFitsAModel(t *testing.T) {
	tier.Long(t)
	var photo bytes.Buffer
	if err := jpeg.Encode(&photo, noise(600, 600), &jpeg.Options{Quality: 95}); err != nil {
		t.Fatal(err)
	}
	line := image.NewRGBA(image.Rect(0, 0, 5000, 2))
	for name, original := range map[string][]byte{
		"noise": noisePNG(t, 1800, 100), "noise within the edge": noisePNG(t, 400, 400),
		"a chart":      encodePNG(t, image.NewRGBA(image.Rect(0, 0, 3200, 100))),
		"a photograph": photo.Bytes(), "a line": encodePNG(t, line),
	} {
		if before, _, err := image.DecodeConfig(bytes.NewReader(original)); err != nil || max(before.Width, before.Height) <= maxEdge && len(original) <= bytesAllowed {
			t.Errorf("%s fits already, or %v", name, err)
		}
		p, err := Shrink(t.Context(), bytes.NewReader(original))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		cfg, format, err := image.DecodeConfig(bytes.NewReader(p.Data))
		if err != nil || "image/"+format != p.MIMEType || cfg.Width != p.Width || cfg.Height != p.Height {
			t.Errorf("%s: %s %v, described as %s of %d×%d", name, format, err, p.MIMEType, p.Width, p.Height)
		}
		if max(p.Width, p.Height) > maxEdge || len(p.Base64()) > maxBase64 {
			t.Errorf("%s: %d×%d in %d bytes", name, p.Width, p.Height, len(p.Base64()))
		}
	}
}

func TestShrinkKeepsWhatFits(t *testing.T) {
	original := tinyPNG(t)
	p, err := Shrink(t.Context(), bytes.NewReader(original))
	if err != nil || !bytes.Equal(p.Data, original) || p.Width != 3 || p.Height != 2 {
		t.Errorf("%+v %v", p, err)
	}
}

func TestTransparencyBecomesWhiteInJPEG(t *testing.T) {
	tier.Long(t)
	img := noise(500, 500)
	for y := range 250 {
		for x := range 500 {
			img.Set(x, y, color.RGBA{})
		}
	}
	p, err := Shrink(t.Context(), bytes.NewReader(encodePNG(t, img)))
	if err != nil || p.MIMEType != "image/jpeg" {
		t.Fatalf("%s %v", p.MIMEType, err)
	}
	shown, _, err := image.Decode(bytes.NewReader(p.Data))
	if err != nil {
		t.Fatal(err)
	}
	if r, _, _, _ := shown.At(20, 20).RGBA(); r < 0xe000 {
		t.Errorf("transparent became %x", r)
	}
}

// bomb returns a PNG that claims a size and contains no pixels.
func bomb(w, h uint32) []byte { return bombOf(w, h, "\x08\x06\x00\x00\x00") }

// bombOf is bomb of a format: depth, colours, compression, filter and interlace.
func bombOf(w, h uint32, format string) []byte {
	b := []byte("\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR")
	b = binary.BigEndian.AppendUint32(b, w)
	b = binary.BigEndian.AppendUint32(b, h)
	b = append(b, format...)
	return binary.BigEndian.AppendUint32(b, crc32.ChecksumIEEE(b[12:]))
}

func TestShrinkRefusesDamagedAndHugePictures(t *testing.T) {
	for name, b := range map[string][]byte{"empty": nil, "text": []byte("<html>"), "torn": noisePNG(t, 100, 100)[:2000], "header only": bomb(10, 10)} {
		if _, err := Shrink(t.Context(), bytes.NewReader(b)); err == nil {
			t.Errorf("%s was accepted", name)
		}
	}
	for _, size := range [][2]uint32{{100_000, 100_000}, {1 << 30, 1}, {4096, 4097}} {
		if _, err := Shrink(t.Context(), bytes.NewReader(bomb(size[0], size[1]))); !errors.Is(err, errPixels) {
			t.Errorf("%v: %v", size, err)
		}
	}
}

// inJSON returns bytes as a JSON string in base64.
func inJSON(b []byte) string { return `"` + base64.StdEncoding.EncodeToString(b) + `"` }

// A process decodes one large picture at a time. Another one waits until its call ends, and small
// ones do not wait for it.
func TestOneLargePictureIsDecodedAtATime(t *testing.T) {
	tier.Long(t)
	for _, turns := range []*memory.Turns{memory.Pictures, memory.Decoding} {
		oneLargePictureAtATime(t, turns)
	}
}

// oneLargePictureAtATime checks that a large picture waits while somebody has the turn: another
// large picture, or an answer that is decoded.
func oneLargePictureAtATime(t *testing.T, turns *memory.Turns) {
	synctest.Test(t, func(t *testing.T) {
		done, err := turns.Take(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		large := encodePNG(t, image.NewGray(image.Rect(0, 0, 1<<11, smallPixels>>11+1)))
		ended := errors.New("the call's time is over")
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Minute, ended)
		defer cancel()
		if _, err := Shrink(ctx, bytes.NewReader(large)); !errors.Is(err, ended) {
			t.Errorf("a second large picture: %v", err)
		}
		if _, err := Redraw(ctx, bytes.NewReader(large), 100); !errors.Is(err, ended) {
			t.Errorf("a second large picture of a terminal: %v", err)
		}
		small := encodePNG(t, image.NewGray(image.Rect(0, 0, 1<<11, smallPixels>>11)))
		if _, err := Shrink(t.Context(), bytes.NewReader(small)); err != nil {
			t.Errorf("a small picture: %v", err)
		}
		done()
		if _, err := Shrink(t.Context(), bytes.NewReader(large)); err != nil {
			t.Errorf("a large picture alone: %v", err)
		}
	})
}

// Each kind of picture has as many pixels as fit into the same memory.
func TestThePixelsOfAPictureAreBoundedByTheirMemory(t *testing.T) {
	sixteen, interlaced := bombOf(1, 1, "\x10\x06\x00\x00\x00"), bombOf(1, 1, "\x08\x06\x00\x00\x01")
	var baseline bytes.Buffer
	if err := jpeg.Encode(&baseline, image.NewRGBA(image.Rect(0, 0, 8, 8)), nil); err != nil {
		t.Fatal(err)
	}
	isProgressive := func(b []byte) []byte { return bytes.Replace(b, []byte{0xff, 0xc0}, []byte{0xff, 0xc2}, 1) }
	progressive := isProgressive(baseline.Bytes())
	adobe := slices.Insert(bytes.Clone(baseline.Bytes()), 2, []byte("\xff\xee\x00\x0eAdobe\x00\x64\x00\x00\x00\x00\x00")...)
	for name, test := range map[string]struct {
		original []byte
		parts    int
	}{
		"PNG": {bomb(1, 1), 1}, "16 bits": {sixteen, 2}, "interlaced": {interlaced, 2},
		"baseline JPEG": {baseline.Bytes(), 1}, "progressive JPEG": {progressive, 4},
		"JPEG in RGB": {adobe, 2}, "progressive JPEG in RGB": {isProgressive(adobe), 8},
	} {
		r := bytes.NewReader(test.original)
		cfg, format, err := image.DecodeConfig(r)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if parts, err := memoryParts(r, cfg, format); err != nil || parts != test.parts {
			t.Errorf("%s takes %d parts, want %d; %v", name, parts, test.parts, err)
		}
	}
}

// Each new pixel is the mean of the area that it covers, and all are covered.
func TestResizeMakesMeans(t *testing.T) {
	for _, size := range [][2]int{{300, 200}, {299, 7}, {1, 1000}, {1000, 1}, {101, 100}} {
		img := image.NewRGBA(image.Rect(5, 7, 5+size[0], 7+size[1]))
		draw.Draw(img, img.Bounds(), image.NewUniform(color.RGBA{10, 200, 99, 255}), image.Point{}, draw.Src)
		small := resize(img, 100)
		if b := small.Bounds(); max(b.Dx(), b.Dy()) != 100 || min(b.Dx(), b.Dy()) < 1 {
			t.Errorf("%v became %v", size, b)
		}
		for y := range small.Bounds().Dy() {
			for x := range small.Bounds().Dx() {
				if got := small.At(x, y); got != (color.RGBA{10, 200, 99, 255}) {
					t.Fatalf("%v has %v at %d, %d", size, got, x, y)
				}
			}
		}
	}
	half := image.NewGray(image.Rect(0, 0, 3, 1)) // two new pixels of one and a half each
	half.Pix = []uint8{0, 90, 240}
	got := resize(half, 2).(*image.RGBA).Pix
	if got[0] != 30 || got[4] != 190 {
		t.Errorf("0, 90, 240 became %d, %d", got[0], got[4])
	}
}

func FuzzShrink(f *testing.F) {
	f.Add(tinyPNG(f))
	f.Add(bomb(1<<31-1, 1<<31-1))
	f.Fuzz(func(t *testing.T, b []byte) {
		if cfg, _, err := image.DecodeConfig(bytes.NewReader(b)); err == nil && cfg.Width > 1<<20/max(cfg.Height, 1) {
			return // valid but slow
		}
		p, err := Shrink(t.Context(), bytes.NewReader(b))
		if err == nil && (max(p.Width, p.Height) > maxEdge || len(p.Base64()) > maxBase64) {
			t.Errorf("%d×%d in %d bytes", p.Width, p.Height, len(p.Data))
		}
	})
}
