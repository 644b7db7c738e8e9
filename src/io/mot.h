/* Tracks as MOTChallenge has them: a text file for each sequence, with a line for each object that has a track,
 *     frame,id,left,top,width,height,score,-1,-1,-1
 * Frames count the images of the sequence from 1, whether or not something is in them; pixels count from 1, too. */
#ifndef IST_IO_MOT_H
#define IST_IO_MOT_H

#include "io/journal.h"

#define IST_MOT_FOLDER "mot"

/* Writes IST_MOT_FOLDER/NAME.txt below `folder` from the journal's lines, NAME being the folder of the sequence as
 * outputs know it, "frames" for images in none, and with "-2", "-3" behind it where an earlier sequence has that name.
 * Each file appears complete or not at all. `lazy` as in ist_atomic_file. */
ist_status ist_mot_write(const char *folder, bool lazy, const ist_journal *journal, const ist_sources *sources,
                         ist_error *err);

#endif
