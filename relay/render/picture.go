package render

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"image"
	"image/color"
	"image/draw"
	"image/jpeg"
	"image/png"
	"io"
	"time"

	"colabrelay/shared/bounded"
	"colabrelay/shared/memory"
)

// Bounds of pictures shown to a model.
const (
	MaxPictures  = 4
	maxEdge      = 1568    // pixels of the long edge; models scale larger pictures down
	maxBase64    = 500_000 // bytes of one picture's base64
	leastEdge    = 64
	bytesAllowed = maxBase64 / 4 * 3
	// maxPixels bounds the pictures that are decoded, to 67 MB of memory each. Eight PNGs of
	// 50 million pixels, about 50 KB each, took 20 s and 1.2 GB.
	maxPixels = 16 << 20
	// smallPixels is up to how many pixels a picture does not wait for large ones.
	smallPixels = 1 << 20
	// maxHeader is how many bytes before its size a picture may have, such as a JPEG's profile.
	maxHeader = 1 << 20
	// decodeTime bounds the work on one picture: a progressive JPEG of a few MB within
	// maxPixels can take hours.
	decodeTime = 5 * time.Second
)

// Picture is one image in a form for a model.
type Picture struct {
	MIMEType      string // image/png or image/jpeg
	Data          []byte
	Width, Height int // as shown
}

// Base64 returns the picture's data in base64.
func (p Picture) Base64() string { return base64.StdEncoding.EncodeToString(p.Data) }

var errPixels = fmt.Errorf("picture has more than %d million pixels, or half as many with 16 bits per channel, interlaced, in CMYK or by Adobe, or a quarter in a progressive JPEG", maxPixels>>20)

// Redraw returns a PNG or JPEG as a new PNG of at most edge pixels on its long edge. Nothing
// of the original's bytes but its pixels is in it. It bounds its work as for a model.
func Redraw(ctx context.Context, original io.ReadSeeker, edge int) (drawn []byte, err error) {
	err = decode(ctx, original, func(_ context.Context, img image.Image, _ string) error {
		var buf bytes.Buffer
		if err := png.Encode(&buf, resize(img, edge)); err != nil {
			return fmt.Errorf("drawing the picture: %w", err)
		}
		drawn = buf.Bytes()
		return nil
	})
	return drawn, err
}

// Pixels returns the width and height of a PNG or JPEG; empty for anything else.
func Pixels(picture io.Reader) string {
	cfg, _, err := image.DecodeConfig(bufio.NewReader(io.LimitReader(picture, maxHeader)))
	if err != nil {
		return ""
	}
	return fmt.Sprintf("%d × %d", cfg.Width, cfg.Height)
}

// decode decodes a PNG or JPEG, and passes it to use. It checks the size before decoding
// anything, because a few kilobytes can encode gigabytes of pixels. A process has one large
// picture in memory at a time. It returns when ctx ends.
func decode(ctx context.Context, original io.ReadSeeker, use func(ctx context.Context, img image.Image, format string) error) error {
	cfg, format, err := image.DecodeConfig(bufio.NewReader(original))
	if err != nil {
		return fmt.Errorf("reading the picture: %w", err)
	}
	parts, err := memoryParts(original, cfg, format)
	if err != nil {
		return fmt.Errorf("reading the picture: %w", err)
	}
	turns, most := memory.Pictures, maxPixels/parts
	if cfg.Width <= 0 || cfg.Height <= 0 || cfg.Width > most/cfg.Height {
		return errPixels
	}
	if cfg.Width*cfg.Height <= smallPixels/parts {
		turns = memory.SmallPictures
	}
	var held memory.Holding
	defer held.Done()
	err = held.Take(ctx, turns)
	if err == nil && turns == memory.Pictures {
		err = held.Take(ctx, memory.Decoding)
	}
	if err != nil {
		return fmt.Errorf("waiting for other pictures: %w", err)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, decodeTime, errSlowPicture)
	defer cancel()
	if _, err := original.Seek(0, io.SeekStart); err != nil {
		return fmt.Errorf("reading the picture: %w", err)
	}
	img, _, err := image.Decode(untilDone(ctx, bufio.NewReader(original)))
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil {
		return fmt.Errorf("decoding the picture: %w", err)
	}
	return use(ctx, img, format)
}

// memoryParts returns how many times the usual memory of a pixel, which is 4 bytes at most, a
// picture of this kind takes while it is decoded.
func memoryParts(original io.ReadSeeker, cfg image.Config, format string) (parts int, err error) {
	parts = 1
	switch cfg.ColorModel {
	case color.NRGBA64Model, color.RGBA64Model, color.CMYKModel:
		parts = 2
	}
	if _, err := original.Seek(0, io.SeekStart); err != nil {
		return 0, err
	}
	switch format {
	case "png":
		const interlace = 28 // where the header has it
		var head [interlace + 1]byte
		if _, err := io.ReadFull(original, head[:]); err != nil {
			return 0, err
		}
		if head[interlace] != 0 {
			parts *= 2
		}
	case "jpeg":
		// Samples that are red, green and blue already are copied. Only Adobe's marker, or odd
		// names of the components, say so. Both markers may also occur in a thumbnail, which
		// makes no difference to most pictures.
		adobe, progressive, err := markers(original)
		if err != nil {
			return 0, err
		}
		if adobe || cfg.ColorModel == color.RGBAModel {
			parts = 2
		}
		if progressive { // its coefficients take four bytes for each sample
			parts += 3 * parts
		}
	}
	return parts, nil
}

// markers reports which of these markers a JPEG has.
func markers(r io.Reader) (adobe, progressive bool, err error) {
	in := bufio.NewReader(r)
	for before := byte(0); ; {
		now, err := in.ReadByte()
		if err == io.EOF {
			return adobe, progressive, nil
		}
		if err != nil {
			return false, false, err
		}
		adobe = adobe || before == 0xff && now == 0xee
		progressive = progressive || before == 0xff && now == 0xc2
		before = now
	}
}

// Shrink reduces a PNG or JPEG to at most maxEdge pixels on its long edge and maxBase64
// bytes in base64. It keeps a picture that fits already. It returns when ctx ends.
func Shrink(ctx context.Context, original io.ReadSeeker) (small Picture, err error) {
	size, err := original.Seek(0, io.SeekEnd)
	if err == nil {
		_, err = original.Seek(0, io.SeekStart)
	}
	if err != nil {
		return Picture{}, fmt.Errorf("reading the picture: %w", err)
	}
	err = decode(ctx, original, func(ctx context.Context, img image.Image, format string) error {
		if long(img) > maxEdge || size > bytesAllowed {
			small, err = shrink(ctx, img, format)
			return err
		}
		b := img.Bounds()
		small = Picture{MIMEType: "image/" + format, Width: b.Dx(), Height: b.Dy()}
		if _, err := original.Seek(0, io.SeekStart); err != nil {
			return err
		}
		small.Data, err = bounded.ReadAll(original, bytesAllowed)
		return err
	})
	return small, err
}

func shrink(ctx context.Context, img image.Image, format string) (Picture, error) {
	edge := long(img)
	sharp := format != "jpeg"
	for edge = min(edge, maxEdge); edge >= leastEdge && ctx.Err() == nil; edge = edge * 3 / 4 {
		small := resize(img, edge)
		mime, data := encode(small, sharp)
		if len(data) <= bytesAllowed {
			b := small.Bounds()
			return Picture{MIMEType: mime, Data: data, Width: b.Dx(), Height: b.Dy()}, nil
		}
		// A picture that is too large as JPEG is too large as PNG too.
		sharp = false
	}
	if ctx.Err() != nil {
		return Picture{}, context.Cause(ctx)
	}
	return Picture{}, errors.New("picture cannot be made small enough")
}

var errSlowPicture = fmt.Errorf("picture takes more than %s to decode", decodeTime)

// untilDone returns a reader that fails once ctx ends, because the decoders accept no
// context.
func untilDone(ctx context.Context, from io.Reader) io.Reader {
	return readerFunc(func(p []byte) (int, error) {
		if ctx.Err() != nil {
			return 0, context.Cause(ctx)
		}
		return from.Read(p)
	})
}

type readerFunc func(p []byte) (int, error)

func (read readerFunc) Read(p []byte) (int, error) { return read(p) }

func long(img image.Image) int { return max(img.Bounds().Dx(), img.Bounds().Dy()) }

// encode returns PNG, which keeps text and lines sharp, if sharp is set and it is small
// enough. Otherwise it returns JPEG of the best quality that fits, or of the lowest one.
func encode(img image.Image, sharp bool) (mime string, data []byte) {
	if sharp {
		var buf bytes.Buffer
		if png.Encode(&buf, img) == nil && buf.Len() <= bytesAllowed {
			return "image/png", buf.Bytes()
		}
	}
	flat := flatten(img)
	for _, quality := range []int{85, 70, 50} {
		var buf bytes.Buffer
		if err := jpeg.Encode(&buf, flat, &jpeg.Options{Quality: quality}); err != nil {
			panic(err) // only for sides over 65,535
		}
		data = buf.Bytes()
		if len(data) <= bytesAllowed || len(data) > 3*bytesAllowed {
			break // it fits, or will not fit with any quality
		}
	}
	return "image/jpeg", data
}

// flatten puts a picture on white, because JPEG would turn transparent pixels black.
func flatten(img image.Image) image.Image {
	out := image.NewRGBA(img.Bounds())
	draw.Draw(out, out.Bounds(), image.NewUniform(color.White), image.Point{}, draw.Src)
	draw.Draw(out, out.Bounds(), img, img.Bounds().Min, draw.Over)
	return out
}

// resize scales img down so that its long edge has at most the given pixels. Each new pixel is the
// mean of those that fall on it. It reads the picture row by row: beside the new picture it takes
// memory for one row, where scalers with a kernel take 32 bytes for each pixel of the new width and
// the old height.
func resize(img image.Image, edge int) image.Image {
	if long(img) <= edge {
		return img
	}
	b := img.Bounds()
	w, h := max(1, b.Dx()*edge/long(img)), max(1, b.Dy()*edge/long(img))
	out := image.NewRGBA(image.Rect(0, 0, w, h))
	row := image.NewRGBA(image.Rect(0, 0, b.Dx(), 1))
	sums, pixels := make([]uint32, 4*w), make([]uint32, w) // maxPixels of 255 fit
	for y := range b.Dy() {
		draw.Draw(row, row.Bounds(), img, image.Pt(b.Min.X, b.Min.Y+y), draw.Src)
		for x := range b.Dx() {
			to := x * w / b.Dx()
			pixels[to]++
			for i, v := range row.Pix[4*x : 4*x+4] {
				sums[4*to+i] += uint32(v)
			}
		}
		at := y * h / b.Dy()
		if at == (y+1)*h/b.Dy() {
			continue
		}
		for i, sum := range sums {
			n := pixels[i/4]
			out.Pix[at*out.Stride+i] = uint8((sum + n/2) / n)
		}
		clear(sums)
		clear(pixels)
	}
	return out
}
